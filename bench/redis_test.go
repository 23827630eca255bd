//go:build linux

package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/bench/internal/redis"
)

// Both servers answer redis-benchmark, and use processor time for it.
func TestRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-benchmark"); err != nil {
		t.Skip(err)
	}
	stdout, stderr, err := bench(t, "redis", "-rounds", "2", "-share", "100", "-json")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	lines := 0
	for line := range strings.Lines(stdout) {
		var r redisRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, kind := range redis.Kinds {
			if us := r.CPU[kind]; len(us) != 2 || us[0] <= 0 || us[1] <= 0 || r.Ratio <= 0 {
				t.Errorf("no figures: %s", line)
			}
		}
		lines++
	}
	if lines != len(redisSets) {
		t.Errorf("%d sets; want %d", lines, len(redisSets))
	}
	if stdout, stderr, err := bench(t, "redis", "-rounds", "1", "-share", "100"); err != nil || !strings.Contains(stdout, "500 clients, pipeline  1, 2 cores: ") {
		t.Errorf("%v: %s%s", err, stdout, stderr)
	}
}
