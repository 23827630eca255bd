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

// Facts prints lines about the machine and the run, in the format of Go benchmarks.
func (e *Env) Facts(ctx context.Context) {
	var u unix.Utsname
	unix.Uname(&u)
	load, _ := os.ReadFile("/proc/loadavg")
	share, _, _ := strings.Cut(string(load), " ")
	const lines = "goos: %s\ngoarch: %s\ncpu: %s\nprocessors: %d\nkernel: %s\ngo: %s\nc: %s\ndate: %s\nload: %s\nfiles: %d\n"
	fmt.Fprintf(e.Out, lines, runtime.GOOS, runtime.GOARCH, cpuModel(), len(e.cpus), unix.ByteSliceToString(u.Release[:]), runtime.Version(),
		e.builder.facts(ctx), time.Now().UTC().Format(time.DateOnly), share, e.Files)
}

// cpuModel returns the model name of the processor.
func cpuModel() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
