package proc_test

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/bench/internal/proc"
	"github.com/socknotify/socknotify/internal/test/await"
)

func TestReadSelf(t *testing.T) {
	before, err := proc.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The run time increases; the kernel may be a tick late.
	for until := time.Now().Add(time.Minute); ; {
		now, err := proc.Read(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		ns, _, err := now.Since(before)
		if err != nil {
			t.Fatal(err)
		}
		if ns > int64(time.Millisecond) {
			break
		}
		if time.Now().After(until) {
			t.Fatal("no run time was counted")
		}
	}
	if n, err := proc.Anonymous(os.Getpid()); n <= 0 || err != nil {
		t.Errorf("Anonymous = %d, %v", n, err)
	}
}

func TestReadGone(t *testing.T) {
	const none = 1 << 30
	if _, err := proc.Read(none); err == nil {
		t.Error("no error for no process")
	}
	if _, err := proc.Anonymous(none); err == nil {
		t.Error("no memory is no error")
	}
}

func TestSpawn(t *testing.T) {
	cpus, err := proc.CPUs()
	if err != nil || len(cpus) == 0 {
		t.Fatal(cpus, err)
	}
	p, err := proc.Start([]string{"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status; echo $GOMAXPROCS; read x"}, cpus[:1])
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	line, err := p.Line(t.Context(), time.Minute)
	if want := "Cpus_allowed_list:\t" + strconv.Itoa(cpus[0]); line != want || err != nil {
		t.Errorf("%q, %v; want %q", line, err, want)
	}
	if line, err := p.Line(t.Context(), time.Minute); line != "1" || err != nil {
		t.Errorf("GOMAXPROCS %q, %v", line, err)
	}
}

// The error of a process that failed has its last line of output.
func TestSpawnFailure(t *testing.T) {
	cpus, err := proc.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start([]string{"/bin/sh", "-c", "echo one >&2; echo the reason >&2; exit 3"}, cpus)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Line(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("%v", err)
	}
	if err := p.Running(); err == nil {
		t.Error("the process still runs")
	}
	p.Stop()
	if _, err := proc.Start([]string{"/nonexistent"}, cpus); err == nil {
		t.Error("no program is no error")
	}
	after, err := proc.CPUs()
	if err != nil || len(after) != len(cpus) {
		t.Errorf("processors %v, %v; were %v", after, err, cpus)
	}
}

func TestRaiseFiles(t *testing.T) {
	n, err := proc.RaiseFiles(64)
	if n < 64 || err != nil {
		t.Errorf("= %d, %v", n, err)
	}
}

// The system calls of a process are counted as it makes them.
func TestCalls(t *testing.T) {
	cpus, err := proc.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	p, err := proc.Start([]string{"/bin/sh", "-c", "echo ready; while :; do sleep 0.01; done"}, cpus)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if _, err := p.Line(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	c, err := proc.CountCalls(p.Pid())
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err) // not allowed, or not supported by the system
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	await.Until(t, "20 calls", func() bool {
		n, err := c.Sum()
		if err != nil {
			t.Fatal(err)
		}
		return n >= 20
	})
	if _, err := proc.CountCalls(1 << 30); err == nil {
		t.Error("the calls of no process can be counted")
	}
}
