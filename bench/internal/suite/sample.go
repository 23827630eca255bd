package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/proc"
)

// A sampler measures a contender once. With trace it also counts its system calls, if possible, outside the measured
// time.
type sampler func(ctx context.Context, e *Env, c *Contender, p contend.Params, trace bool) (contend.Outcome, error)

// patience bounds the wait for anything that must happen, even on a busy machine.
const patience = time.Minute

// own lets a contender measure itself. On a busy machine it measures for longer, until there was an operation.
func own(ctx context.Context, e *Env, c *Contender, p contend.Params, _ bool) (o contend.Outcome, err error) {
	p.Millis = int(e.Window.Milliseconds())
	for begun := time.Now(); ; p.Millis *= 2 {
		if o, err = ownFor(ctx, e, c, p); err != nil || o.Ops > 0 {
			return o, err
		}
		if time.Since(begun) > patience {
			return o, fmt.Errorf("%s: no operation in %d ms", c.Name, p.Millis)
		}
	}
}

// ownFor lets it measure for the time in the parameters.
func ownFor(ctx context.Context, e *Env, c *Contender, p contend.Params) (o contend.Outcome, err error) {
	process, err := proc.Start(c.argv(p), e.serverCPUs(p.Cores))
	if err != nil {
		return o, err
	}
	defer process.Stop()
	line, err := process.Line(ctx, patience)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		return o, fmt.Errorf("%s: %q: %w", c.Name, line, err)
	}
	return o, nil
}

// onServer lets a function measure a server from outside.
func onServer(
	measure func(context.Context, *scene, contend.Params, bool) (contend.Outcome, error),
) sampler {
	return func(
		ctx context.Context, e *Env, c *Contender, p contend.Params, trace bool,
	) (o contend.Outcome, err error) {
		s, err := e.start(ctx, c, p)
		if err != nil {
			return o, err
		}
		defer s.stop()
		if o, err = measure(ctx, s, p, trace); err == nil {
			err = s.running()
		}
		return o, err
	}
}

// serve measures a server under a load with the parameters.
func serve(load contend.Load) sampler {
	return onServer(func(
		ctx context.Context, s *scene, p contend.Params, trace bool,
	) (o contend.Outcome, err error) {
		if err := s.load(ctx, p, load); err != nil {
			return o, err
		}
		if o, err = s.measure(ctx, s.e.Window, false); err != nil || !trace {
			return o, err
		}
		counted, err := s.measure(ctx, s.e.Window, true) // outside of the measured time
		o.Syscalls = counted.Syscalls
		return o, err
	})
}

// idle measures the memory of connections that had one request each.
func idle(ctx context.Context, s *scene, p contend.Params, _ bool) (o contend.Outcome, err error) {
	// A few connections come first, so that what a server allocates once is not counted.
	few := p
	few.Connections = min(p.Connections, 64)
	var before, after float64
	for _, step := range []struct {
		params contend.Params
		bytes  *float64
	}{{few, &before}, {p, &after}} {
		// The rate keeps few requests in flight, so that a server needs no more buffers than for few connections.
		if err := s.load(ctx, step.params, contend.Load{Each: 1, Rate: 5000}); err != nil {
			return o, err
		}
		if *step.bytes, err = s.settled(ctx); err != nil {
			return o, err
		}
	}
	per := (after - before) / float64(p.Connections-few.Connections)
	return contend.Outcome{Ops: float64(p.Connections), Bytes: &per}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
