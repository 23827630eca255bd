package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Tracer counts system calls of a running process.
type Tracer struct {
	// Name is perf or strace, or empty if neither works.
	Name string
	// Why is the reason if neither works.
	Why  string
	self string
	dir  string
}

// tracepoint is hit at every entry into a system call.
const tracepoint = "raw_syscalls:sys_enter"

// FindTracer returns a tool that works here: perf, which hardly disturbs the process, or else strace. self is the
// program that has the command window, and dir a folder for files.
func FindTracer(ctx context.Context, self, dir string) Tracer {
	t := Tracer{self: self, dir: dir}
	_, perf := exec.LookPath("perf")
	if perf == nil {
		out := filepath.Join(dir, "perf-probe")
		perf = run(ctx, "perf", "stat", "-x,", "-o", out, "-e", tracepoint, "-p", strconv.Itoa(os.Getpid()), "--", "true")
		if perf == nil {
			t.Name = "perf"
			return t
		}
	}
	_, strace := exec.LookPath("strace")
	if strace == nil {
		if strace = run(ctx, "strace", "-c", "-o", os.DevNull, "true"); strace == nil {
			t.Name = "strace"
			return t
		}
	}
	t.Why = fmt.Sprintf("perf: %v; strace: %v", perf, strace)
	return t
}

// Count returns how many system calls a process makes per operation, measured for a time. done returns the number of
// operations so far; counters is the file from which the command window reads it.
func (t Tracer) Count(ctx context.Context, pid int, d time.Duration, counters string, done func() int64) (float64, error) {
	switch t.Name {
	case "perf":
		return t.perf(ctx, pid, d, counters)
	case "strace":
		return t.strace(ctx, pid, d, done)
	}
	return 0, errors.New(t.Why)
}

// perf counts as long as the command that it runs, so that command counts the operations.
func (t Tracer) perf(ctx context.Context, pid int, d time.Duration, counters string) (float64, error) {
	file := filepath.Join(t.dir, "perf")
	cmd := exec.CommandContext(ctx, "perf", "stat", "-x,", "-o", file, "-e", tracepoint, "-p", strconv.Itoa(pid), "--",
		t.self, "window", counters, d.String())
	said, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("perf: %w", err)
	}
	ops, err := strconv.ParseUint(strings.TrimSpace(string(said)), 10, 64)
	if err != nil || ops == 0 {
		return 0, fmt.Errorf("perf: %q operations", said)
	}
	report, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	calls, err := parsePerf(string(report))
	return float64(calls) / float64(ops), err
}

// parsePerf returns the count in a report of perf stat -x,.
func parsePerf(report string) (uint64, error) {
	for line := range strings.Lines(report) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) > 2 && fields[2] == tracepoint {
			return strconv.ParseUint(fields[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("perf: no count of %s", tracepoint)
}

// strace slows the process down. That changes how many requests a wait finds, but hardly the number of calls for each.
func (t Tracer) strace(ctx context.Context, pid int, d time.Duration, done func() int64) (float64, error) {
	file := filepath.Join(t.dir, "strace")
	os.Remove(file)
	cmd := exec.CommandContext(ctx, "strace", "-f", "-c", "-o", file, "-p", strconv.Itoa(pid))
	attached := &lockedBuffer{}
	cmd.Stderr = attached
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for until := time.Now().Add(5 * time.Second); !strings.Contains(attached.String(), "attached"); {
		if time.Now().After(until) {
			cmd.Process.Kill()
			cmd.Wait()
			return 0, fmt.Errorf("strace did not attach: %s", lastLine(attached.String()))
		}
		time.Sleep(5 * time.Millisecond)
	}
	before, start := done(), time.Now()
	for time.Since(start) < d || done() == before && time.Since(start) < time.Minute {
		time.Sleep(min(d, 10*time.Millisecond))
	}
	ops := done() - before
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait() // ended by the signal
	report, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("strace: %w", err)
	}
	calls, err := parseStrace(string(report))
	if err == nil && ops == 0 {
		err = errors.New("strace: no operation was counted")
	}
	return float64(calls) / float64(ops), err
}

// parseStrace returns the sum of the calls in a report of strace -c, its fourth column.
func parseStrace(report string) (uint64, error) {
	for line := range strings.Lines(report) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[len(fields)-1] == "total" {
			return strconv.ParseUint(fields[3], 10, 64)
		}
	}
	return 0, errors.New("strace: no total")
}

func run(ctx context.Context, argv ...string) error {
	said, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil && len(said) > 0 {
		return fmt.Errorf("%w: %s", err, lastLine(strings.TrimSpace(string(said))))
	}
	return err
}
