package suite

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Facts returns lines about the machine and the run.
func (e *Env) Facts(ctx context.Context) []string {
	var u unix.Utsname
	unix.Uname(&u)
	tracer := e.Tracer.Name
	if tracer == "" {
		tracer = "none (" + e.Tracer.Why + ")"
	}
	load, _ := os.ReadFile("/proc/loadavg")
	share, _, _ := strings.Cut(string(load), " ")
	facts := []string{
		fmt.Sprintf("%s, %d processors, %s; Linux %s", runtime.GOARCH, len(e.cpus), cpuModel(), unix.ByteSliceToString(u.Release[:])),
		fmt.Sprintf("%s; C: %s", runtime.Version(), e.CompilerFacts(ctx)),
		fmt.Sprintf("%s; load average at the start: %s", time.Now().UTC().Format(time.DateOnly), share),
		fmt.Sprintf("up to %d rounds of %v; system calls counted by %s", e.Rounds, e.Window, tracer),
	}
	if e.Files < wantFiles {
		facts = append(facts, fmt.Sprintf("open files: %d, and not %d: what needs more is not measured", e.Files, wantFiles))
	}
	return facts
}

// cpuModel returns the model name of the processor.
func cpuModel() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
