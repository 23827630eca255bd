package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/bench/internal/proc"
)

// Options are the options of a run.
type Options struct {
	Self     string            // this program, which has the commands contend and load
	Sources  fs.FS             // of the C programs
	External map[string]string // further echo servers: names and programs
	Rounds   int
	Window   time.Duration // of one sample
	Warm     time.Duration // before it
	Quick    bool
	Only     string // run sets whose parameters contain it
	// Contender restricts a run to the reference and the contenders whose names contain it.
	Contender string
	Out       io.Writer // the samples, in the format of Go benchmarks
	Warnings  io.Writer // what is being measured, and failures after which the run continues
}

// An Env is the environment of a run. Close removes its files.
type Env struct {
	Options
	Files uint64 // the limit of open files

	dir      string
	cpus     []int
	builder  *builder
	counters *proc.Counters // of answers, by the load generator
}

// wantFiles is enough for the largest sets: a pair of sockets for each of 9,000, and some more.
const wantFiles = 20_000

// NewEnv prepares the environment of a run.
func NewEnv(o Options) (*Env, error) {
	dir, err := os.MkdirTemp("", "socknotify-bench-")
	if err != nil {
		return nil, err
	}
	e := &Env{Options: o, dir: dir}
	var err1, err2, err3, err4 error
	e.builder, err1 = newBuilder(e.Sources, filepath.Join(dir, "c"))
	e.cpus, err2 = proc.CPUs()
	e.Files, err3 = proc.RaiseFiles(wantFiles)
	e.counters, err4 = proc.OpenCounters(e.countersPath())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Env) countersPath() string { return filepath.Join(e.dir, "counters") }

// Close removes the files of the run.
func (e *Env) Close() error { return os.RemoveAll(e.dir) }

// serverCPUs returns the processors of a contender, and loadCPUs those of the load generator: the
// others, or all if the contender has them all.
func (e *Env) serverCPUs(cores int) []int { return e.cpus[:min(max(cores, 1), len(e.cpus))] }

func (e *Env) loadCPUs(cores int) []int {
	if rest := e.cpus[len(e.serverCPUs(cores)):]; len(rest) > 0 {
		return rest
	}
	return e.cpus
}

func (e *Env) warn(format string, args ...any) {
	fmt.Fprintf(e.Warnings, format+"\n", args...)
}

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
