package proc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Process is a started process. Stop ends it.
type Process struct {
	cmd    *exec.Cmd
	lines  chan string
	ended  chan struct{}
	stderr bytes.Buffer // to be read when it has ended, as err
	err    error
}

// Start starts a command on these processors, with GOMAXPROCS set to their number. The system kills
// it when this process ends.
func Start(argv []string, cpus []int) (*Process, error) {
	p := &Process{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 1), ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(len(cpus)))
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := on(cpus, p.cmd.Start); err != nil { // the process inherits the processors
		return nil, err
	}
	go func() {
		for in := bufio.NewScanner(stdout); in.Scan(); {
			p.lines <- in.Text()
		}
		close(p.lines)
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Line returns the next line that the process prints. It fails if the process ends or the limit is over.
func (p *Process) Line(ctx context.Context, limit time.Duration) (string, error) {
	late := fmt.Errorf("%s: nothing printed after %v", p.name(), limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.ended
			return "", p.failure()
		}
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Running returns nil if the process runs, and otherwise an error.
func (p *Process) Running() error {
	select {
	case <-p.ended:
		return p.failure()
	default:
		return nil
	}
}

// Signal sends a signal.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop kills the process and waits for its end.
func (p *Process) Stop() {
	p.cmd.Process.Kill()
	for range p.lines {
	}
	<-p.ended
}

func (p *Process) failure() error {
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		return fmt.Errorf("%s: %s", p.name(), said[strings.LastIndexByte(said, '\n')+1:])
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name(), p.err)
	}
	return fmt.Errorf("%s ended without a result", p.name())
}

func (p *Process) name() string { return strings.Join(p.cmd.Args[1:], " ") }

// RaiseFiles raises the limit of open files to want, or as far as it is allowed, and returns the limit. Processes that
// are started later inherit it.
func RaiseFiles(want uint64) (uint64, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	want = max(want, l.Cur)
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(want, l.Max)}) == nil {
		return want, nil
	}
	l.Cur = min(want, l.Max) // more is not allowed
	return l.Cur, unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// CPUs returns the processors that this process may use.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus, nil
}

// Touch runs for a moment on each of these processors, which makes the scheduler update the run time of the thread that
// ran there. Otherwise it does so only at its ticks.
func Touch(cpus []int) error {
	for i := range cpus {
		if err := on(cpus[i:i+1], func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// on calls f on a thread that runs on these processors alone.
func on(cpus []int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processors %v: %w", cpus, err)
	}
	return errors.Join(f(), unix.SchedSetaffinity(0, &before))
}

// Counters are counts that one process makes and another reads, in a file that both map.
type Counters struct{ mem []byte }

const (
	// MaxCounters is how many counts there are.
	MaxCounters = 64
	// apart is the distance of two counts in bytes, so that they share no cache line.
	apart = 128
)

// OpenCounters maps the file, until this process ends, and creates it first if it does not exist.
func OpenCounters(path string) (*Counters, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(MaxCounters * apart); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, MaxCounters*apart, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &Counters{mem}, nil
}

// Of returns count i.
func (c *Counters) Of(i int) *atomic.Int64 {
	return (*atomic.Int64)(unsafe.Pointer(&c.mem[i*apart]))
}

// Reset makes all counts zero. No process may be counting.
func (c *Counters) Reset() {
	for i := range MaxCounters {
		c.Of(i).Store(0)
	}
}

// Sum returns the sum of all counts.
func (c *Counters) Sum() (n int64) {
	for i := range MaxCounters {
		n += c.Of(i).Load()
	}
	return n
}
