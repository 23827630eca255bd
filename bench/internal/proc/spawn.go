package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
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
		return fmt.Errorf("%s: %s", p.name(), said[strings.LastIndexByte(said, '\n')+1:])
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.name(), p.err)
	}
	return fmt.Errorf("%s ended without a result", p.name())
}

func (p *Process) name() string { return strings.Join(p.cmd.Args[1:], " ") }
