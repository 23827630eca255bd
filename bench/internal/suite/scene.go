package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/proc"
)

// A scene is a server with the load on it.
type scene struct {
	e           *Env
	params      contend.Params
	trace       bool // system calls are to be counted
	settles     bool // the contender's
	server, gen *proc.Process
	addr        string
	cpus        []int // of the server
}

func (e *Env) start(ctx context.Context, c *Contender, p contend.Params) (_ *scene, err error) {
	s := &scene{e: e, params: p, settles: c.settles, cpus: e.serverCPUs(p.Cores)}
	if s.server, err = proc.Start(c.argv(p), s.cpus); err != nil {
		return nil, err
	}
	if s.addr, err = ready(ctx, s.server); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// ready waits for the line of a process that begins with ready, and returns the rest of it.
func ready(ctx context.Context, p *proc.Process) (string, error) {
	line, err := p.Line(ctx, patience)
	if err != nil {
		return "", err
	}
	what, rest, _ := strings.Cut(line, " ")
	if what != "ready" {
		return "", fmt.Errorf("%q instead of ready", line)
	}
	return rest, nil
}

// load starts the load generator with the parameters, and waits until the server is warm. A running
// generator is stopped first.
func (s *scene) load(ctx context.Context, p contend.Params, l contend.Load) (err error) {
	if s.gen != nil {
		s.gen.Stop()
	}
	s.e.counters.Reset()
	cpus := s.e.loadCPUs(p.Cores)
	l.Params, l.Addr, l.Counters = p, s.addr, s.e.countersPath()
	l.Workers = min(max(p.Cores, 1), len(cpus))
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if s.gen, err = proc.Start([]string{s.e.Self, "load", string(b)}, cpus); err != nil {
		return err
	}
	if _, err = ready(ctx, s.gen); err != nil {
		return s.because(err)
	}
	return s.warm(ctx, p)
}

// because returns the failure of the server, if any, instead of err: a failure of the load follows
// from it.
func (s *scene) because(err error) error {
	if err != nil {
		if failed := s.server.Running(); failed != nil {
			return failed
		}
	}
	return err
}

func (s *scene) running() error {
	if s.gen != nil {
		if err := s.gen.Running(); err != nil {
			return s.because(err)
		}
	}
	return s.server.Running()
}

// warm waits until there are as many answers as connections with requests, and then for the time
// Warm.
func (s *scene) warm(ctx context.Context, p contend.Params) error {
	want := int64(p.Connections)
	if p.Busy > 0 {
		want = int64(p.Busy)
	}
	for start := time.Now(); s.e.counters.Sum() < want; {
		if err := errors.Join(sleep(ctx, 5*time.Millisecond), s.running()); err != nil {
			return err
		}
		if time.Since(start) > patience {
			return fmt.Errorf("%d answers on %d connections after %v", s.e.counters.Sum(), want, patience)
		}
	}
	return sleep(ctx, s.e.Warm)
}

// measure measures what the server uses in a window, and the number of its answers. On a busy machine
// it takes longer, until neither is zero.
func (s *scene) measure(ctx context.Context) (o contend.Outcome, err error) {
	before, err := s.read()
	if err != nil {
		return o, err
	}
	for wait := s.e.Window; ; wait = s.e.Window/10 + time.Millisecond {
		if err := sleep(ctx, wait); err != nil {
			return o, err
		}
		now, err := s.read()
		if err != nil {
			return o, err
		}
		o, err = now.since(before, float64(now.done-before.done))
		if err != nil || o.Ops > 0 && o.CPU > 0 {
			return o, err
		}
		if now.at.Sub(before.at) > patience {
			return o, fmt.Errorf("no answer in %v", patience)
		}
	}
}

// A reading has the figures of one moment.
type reading struct {
	used proc.Usage
	done int64
	at   time.Time
}

func (s *scene) read() (r reading, err error) {
	if err := proc.Touch(s.cpus); err != nil {
		return r, err
	}
	if r.used, err = proc.Read(s.server.Pid()); err != nil {
		return r, s.because(err)
	}
	r.done, r.at = s.e.counters.Sum(), time.Now()
	return r, s.running()
}

// since returns what the server has used for a number of operations since an earlier reading.
func (r reading) since(before reading, ops float64) (contend.Outcome, error) {
	runtime, switches, err := r.used.Since(before.used)
	return contend.Outcome{
		Ops: ops, CPU: float64(runtime),
		Elapsed: float64(r.at.Sub(before.at)), Switches: float64(switches),
	}, err
}

func (s *scene) stop() {
	for _, p := range []*proc.Process{s.gen, s.server} {
		if p != nil {
			p.Stop()
		}
	}
}

// settled returns the memory of the server when it no longer changes.
func (s *scene) settled(ctx context.Context) (float64, error) {
	last, same := int64(-1), 0
	for until := time.Now().Add(patience); same < 4; {
		if s.settles && same < 2 {
			if err := s.server.Signal(syscall.SIGUSR1); err != nil {
				return 0, err
			}
		}
		if err := sleep(ctx, 25*time.Millisecond); err != nil {
			return 0, err
		}
		now, err := proc.Anonymous(s.server.Pid())
		if err != nil {
			return 0, s.because(err)
		}
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		if time.Now().After(until) {
			return 0, fmt.Errorf("the memory of the server still changes after %v", patience)
		}
	}
	return float64(last), nil
}
