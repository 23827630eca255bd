package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Process is a started process. Stop ends it.
type Process struct {
	cmd    *exec.Cmd
	lines  chan string
	stderr lockedBuffer
	ended  chan struct{}
	err    error // set when it has ended
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
	if err := startOn(p.cmd, cpus); err != nil {
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

// startOn starts a command from a thread on these processors, which it inherits.
func startOn(cmd *exec.Cmd, cpus []int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, set unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return cmd.Start() // on any processor
	}
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("processors %v: %w", cpus, err)
	}
	defer unix.SchedSetaffinity(0, &all)
	return cmd.Start()
}

// Pid returns the process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Line returns the next line that the process prints. It fails if the process ends or the limit is over.
func (p *Process) Line(ctx context.Context, limit time.Duration) (string, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.ended
			return "", p.failure()
		}
		return line, nil
	case <-late.C:
		return "", fmt.Errorf("%s: nothing printed after %v", p.name(), limit)
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
		return fmt.Errorf("%s: %s", p.name(), lastLine(said))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name(), p.err)
	}
	return fmt.Errorf("%s ended without a result", p.name())
}

func (p *Process) name() string { return strings.Join(p.cmd.Args[1:], " ") }

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// A lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
