//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/bench/internal/suite"
	"github.com/socknotify/socknotify/internal/test/await"
)

// The test program is also the contenders and the load generator.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"contend", "load"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

func bench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, diag bytes.Buffer
	err = run(t.Context(), args, &out, &diag)
	return out.String(), diag.String(), err
}

func TestBadUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"nothing"}, `no workload "nothing"`},
		{[]string{"-rounds", "-1"}, "-rounds"},
		{[]string{"echo", "-window", "1us"}, "-window"},
		{[]string{"-external", "x=/nonexistent"}, "/nonexistent"},
		{[]string{"contend", "echo", "unknown", "{}"}, `no contender "unknown"`},
		{[]string{"contend", "core", "go-epoll", "{"}, "parameters"},
		{[]string{"contend", "core", "go-epoll", `{"Registered":3,"Active":4}`}, "4 active of 3"},
	} {
		if _, _, err := bench(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// units returns the units of a line of a benchmark, and its name.
func units(line string) (name string, all []string) {
	fields := strings.Fields(line)
	for i := 3; i < len(fields); i += 2 {
		all = append(all, fields[i])
	}
	return fields[0], all
}

// Each contender runs each of its workloads.
func TestEveryContender(t *testing.T) {
	needs := map[string][]string{"idle": {"B/conn"}, "core": {"ns/op", "total-ns/op", "cpu-ratio"}}
	for _, w := range suite.Workloads() {
		t.Run(w.Name, func(t *testing.T) {
			if _, err := exec.LookPath("redis-benchmark"); err != nil && w.Name == "redis" {
				t.Skip(err)
			}
			stdout, stderr, err := bench(t, w.Name, "-quick", "-window", "20ms")
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			for line := range strings.Lines(stderr) {
				missing := strings.Contains(line, "not measured: no C compiler") || strings.Contains(line, ": libevent is not") ||
					strings.Contains(line, ": libuv is not")
				if !missing && (strings.Contains(line, "not measured") || strings.Contains(line, "failed: ")) {
					t.Error(line)
				}
			}
			want := needs[w.Name]
			if want == nil {
				want = []string{"ns/op", "cpu-ratio", "ops/s"}
			}
			measured := 0
			for line := range strings.Lines(stdout) {
				if !strings.HasPrefix(line, "Benchmark") {
					continue
				}
				measured++
				name, got := units(line)
				for _, unit := range want {
					if !slices.Contains(got, unit) {
						t.Errorf("%s has no %s", name, unit)
					}
				}
			}
			if measured < 3 {
				t.Errorf("%d measured:\n%s%s", measured, stdout, stderr)
			}
		})
	}
}

// An external program takes part.
func TestExternal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "server")
	script := fmt.Sprintf("#!/bin/sh\nexec %q contend echo std '{}'\n", self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := bench(t, "accept", "-quick", "-window", "5ms", "-external", "mine="+path)
	if err != nil || !strings.Contains(stdout, "/contender=mine ") {
		t.Errorf("%v: no line of the external program:\n%s%s", err, stdout, stderr)
	}
}

// A run measures the parameters and the contenders that were chosen, and the reference.
func TestOnlyAndContender(t *testing.T) {
	stdout, stderr, err := bench(t, "waiters", "-rounds", "1", "-window", "1ms", "-only", "waiters=16 ",
		"-contender", "oneshot+drained")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	chosen := 0
	for line := range strings.Lines(stdout) {
		if !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		if !strings.Contains(line, "/waiters=16/") {
			t.Error(line)
		}
		if strings.Contains(line, "oneshot+drained ") {
			chosen++
		} else if !strings.Contains(line, "level-1-waiter ") && !strings.Contains(line, "go-epoll-1-waiter ") {
			t.Error(line)
		}
	}
	if chosen == 0 {
		t.Errorf("%s\n%s", stdout, stderr)
	}
}

// A run that is interrupted ends soon with an error.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"core", "-window", "10ms"}, &bytes.Buffer{}, &bytes.Buffer{}) }()
	if await.Receive(t, "the run ends", done) == nil {
		t.Error("no error")
	}
}
