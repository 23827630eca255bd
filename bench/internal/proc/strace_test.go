package proc_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/socknotify/socknotify/bench/internal/proc"
)

// strace counts the system calls of a process.
func TestStrace(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("there is no strace: ", err)
	}
	cpus, err := proc.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // for its report
	// Each byte is a read and a write.
	p, err := proc.NewSpawner().Start([]string{"/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=1"}, cpus)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	tracer := proc.Tracer{Name: "strace"}
	start := time.Now()
	ops := func() int64 { return time.Since(start).Milliseconds() }
	calls, err := tracer.Count(t.Context(), p.Pid(), 200*time.Millisecond, "", ops)
	if err != nil || calls <= 0 {
		t.Errorf("%v calls per operation, %v", calls, err)
	}
}

func TestNoTracer(t *testing.T) {
	tracer := proc.Tracer{Why: "neither is there"}
	if _, err := tracer.Count(t.Context(), 1, time.Millisecond, "", nil); err == nil || err.Error() != tracer.Why {
		t.Errorf("%v", err)
	}
}
