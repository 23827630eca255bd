package suite

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/socknotify/socknotify/bench/internal/native"
	"github.com/socknotify/socknotify/bench/internal/proc"
)

// Options are the options of a run.
type Options struct {
	Self     string            // this program, which has the commands contend and load
	Sources  fs.FS             // of the C programs
	Compiler string            // of C; empty is the system's
	External map[string]string // further echo servers: names and programs
	Rounds   int
	Window   time.Duration // of one sample
	Warm     time.Duration // before it
	Quick    bool
	Only     string // run sets whose parameters contain it
	// Contender restricts a run to the reference and the contenders whose names contain it.
	Contender string
	Out       io.Writer // the samples, in the format of Go benchmarks
	Warnings  io.Writer // what is being measured, and failures after which the run continues; nil: none
}

// An Env is the environment of a run. Close removes its files.
type Env struct {
	Options
	Files uint64 // the limit of open files

	dir     string
	cpus    []int
	builder *native.Builder
	built   map[string]build
}

type build struct {
	path string
	err  error
}

// wantFiles is enough for the largest sets: a pair of sockets for each of 9,000, and some more.
const wantFiles = 20_000

// NewEnv prepares the environment of a run.
func NewEnv(ctx context.Context, o Options) (*Env, error) {
	dir, err := os.MkdirTemp("", "socknotify-bench-")
	if err != nil {
		return nil, err
	}
	e := &Env{Options: o, dir: dir, built: map[string]build{}}
	if err := e.prepare(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Env) prepare(ctx context.Context) error {
	var err error
	if e.builder, err = native.NewBuilder(e.Sources, filepath.Join(e.dir, "c"), e.Compiler); err != nil {
		return err
	}
	if e.cpus, err = proc.CPUs(); err != nil {
		return err
	}
	if e.Files, err = proc.RaiseFiles(wantFiles); err != nil {
		return err
	}
	return nil
}

// Close removes the files of the run.
func (e *Env) Close() error { return os.RemoveAll(e.dir) }

// CompilerFacts returns the name of the C compiler, or that there is none.
func (e *Env) CompilerFacts(ctx context.Context) string { return e.builder.Facts(ctx) }

func (e *Env) build(ctx context.Context, program string, libraries []string) (string, error) {
	b, ok := e.built[program]
	if !ok {
		b.path, b.err = e.builder.Build(ctx, program, libraries...)
		e.built[program] = b
	}
	return b.path, b.err
}

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
	if e.Warnings != nil {
		fmt.Fprintf(e.Warnings, format+"\n", args...)
	}
}
