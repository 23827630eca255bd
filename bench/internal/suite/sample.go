package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strconv"
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
func onServer(measure func(context.Context, *scene) (contend.Outcome, error)) sampler {
	return func(
		ctx context.Context, e *Env, c *Contender, p contend.Params, trace bool,
	) (o contend.Outcome, err error) {
		s, err := e.start(ctx, c, p)
		if err != nil {
			return o, err
		}
		defer s.stop()
		s.trace = trace
		if o, err = measure(ctx, s); err == nil {
			err = s.running()
		}
		return o, err
	}
}

// serve measures a server under a load with the parameters.
func serve(load contend.Load) sampler {
	return onServer(func(ctx context.Context, s *scene) (o contend.Outcome, err error) {
		if err := s.load(ctx, s.params, load); err != nil {
			return o, err
		}
		if o, err = s.measure(ctx); err != nil || !s.trace {
			return o, err
		}
		count, err := proc.CountCalls(s.server.Pid())
		if err != nil {
			s.e.warn("system calls are not counted: %v", err)
			return o, nil
		}
		defer count.Close()
		counted, err := s.measure(ctx) // outside of the measured time
		if err != nil {
			return o, err
		}
		n, err := count.Sum()
		o.Syscalls = new(float64(n) / counted.Ops)
		return o, err
	})
}

// idle measures the memory of connections that had one request each.
func idle(ctx context.Context, s *scene) (o contend.Outcome, err error) {
	// A few connections come first, so that what a server allocates once is not counted.
	few := s.params
	few.Connections = min(few.Connections, 64)
	var bytes [2]float64
	for i, p := range []contend.Params{few, s.params} {
		// The rate keeps few requests in flight, so that a server needs no more buffers than for few connections.
		if err := s.load(ctx, p, contend.Load{Each: 1, Rate: 5000}); err != nil {
			return o, err
		}
		if bytes[i], err = s.settled(ctx); err != nil {
			return o, err
		}
	}
	o.Ops = float64(s.params.Connections)
	o.Bytes = new((bytes[1] - bytes[0]) / float64(s.params.Connections-few.Connections))
	return o, nil
}

// redisProgram makes the load of the workload redis.
const redisProgram = "redis-benchmark"

// redisBenchmark measures a Redis server under the load of redis-benchmark.
func redisBenchmark(ctx context.Context, s *scene) (o contend.Outcome, err error) {
	_, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return o, err
	}
	run := func(args ...string) error {
		args = append([]string{"-q", "-p", port}, args...)
		said, err := exec.CommandContext(ctx, redisProgram, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", redisProgram, err, said)
		}
		return s.running()
	}
	if err := run("-t", "set", "-n", "1", "-c", "1"); err != nil { // the key that GET asks for
		return o, err
	}
	before, err := s.read()
	if err != nil {
		return o, err
	}
	if err := run("-t", "get", "-n", strconv.Itoa(s.params.Requests),
		"-c", strconv.Itoa(s.params.Connections), "-P", strconv.Itoa(s.params.Depth)); err != nil {
		return o, err
	}
	now, err := s.read()
	if err != nil {
		return o, err
	}
	return now.since(before, float64(s.params.Requests))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
