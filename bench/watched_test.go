//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/bench/internal/suite"
)

// A server is measured with each observer, as fast as it can answer and at a rate.
func TestWatched(t *testing.T) {
	for _, only := range []string{"size=64 cores=1", "rate=2000 cores=1"} {
		stdout, stderr, err := bench(t, "watched", "-quick", "-rounds", "2", "-json", "-only", only)
		if err != nil && strings.Contains(err.Error(), "system calls cannot be counted") {
			t.Skip(err) // perf events are not allowed
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		var names []string
		for line := range strings.Lines(stdout) {
			var r suite.WatchedRecord
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			names = append(names, r.Way)
			if r.Rounds < 2 || r.Syscalls.Median <= 0 || r.CPU.Median <= 0 || r.PlainSyscalls < 2 || r.PlainCPU <= 0 || r.PlainRate <= 0 {
				t.Errorf("no figures: %s", line)
			}
			if r.Params.Rate > 0 && r.PlainRate > 2*float64(r.Params.Rate) { // on a busy machine it is less
				t.Errorf("%.0f requests a second; want %d", r.PlainRate, r.Params.Rate)
			}
		}
		if got := strings.Join(names, ", "); got != "none, debug page mounted, debug page open, scraped" {
			t.Errorf("%s: %s", only, got)
		}
	}
	if stdout, _, err := bench(t, "watched", "-quick", "-only", "size=64 cores=1"); err != nil || !strings.Contains(stdout, "MORE A SECOND") {
		t.Errorf("%v: %s", err, stdout)
	}
}
