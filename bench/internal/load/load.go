// Package load is the load generator: closed loops over TCP or UDP on loopback, whose every answer is
// compared with the request. It counts answers where the process that started it can read them.
package load

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
)

// The kinds of load.
const (
	Echo   = "echo"   // requests on connections that stay
	Accept = "accept" // a connection, a request, a reset, and again
	Idle   = "idle"   // one request per connection, and then silence
	UDP    = "udp"    // datagrams
)

// Config says what to send where.
type Config struct {
	Kind        string
	Addr        netip.AddrPort
	Connections int
	Busy        int // connections with requests; 0 is all
	Size        int // bytes of a request
	Depth       int // requests in flight per connection
	Threads     int
	// Rate is requests per second over all connections, of the kind Echo, one in flight on each; 0 is as many as
	// are answered.
	Rate float64
	// Burst is how many of them are due at once; 0 is one.
	Burst int
}

// Run puts load on the address until the context is done, or something is wrong. Ready is called when
// every connection stands; of idle ones, when each has had its answer.
func Run(ctx context.Context, cfg Config, counters *Counters, ready func()) error {
	if cfg.Threads < 1 || cfg.Threads > maxThreads {
		return fmt.Errorf("%d threads: must be from 1 to %d", cfg.Threads, maxThreads)
	}
	if cfg.Size < 1 || cfg.Size > chunk || cfg.Depth < 1 || cfg.Depth*cfg.Size > chunk {
		return fmt.Errorf("%d requests of %d bytes: more than %d bytes in flight", cfg.Depth, cfg.Size, chunk)
	}
	debug.SetGCPercent(-1) // what is allocated is allocated at the start
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running, standing sync.WaitGroup
	standing.Add(cfg.Threads)
	for i := range cfg.Threads {
		running.Go(func() {
			runtime.LockOSThread()
			stand := sync.OnceFunc(standing.Done)
			defer stand()
			if err := run(ctx, cfg, i, counters, stand); err != nil {
				cancel(err)
			}
		})
	}
	standing.Wait()
	if ctx.Err() == nil {
		ready()
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil && err != context.Canceled {
		return err
	}
	return nil
}

// share is how many of n things the i-th thread has.
func share(n, threads, i int) int { return (n - i + threads - 1) / threads }

func run(ctx context.Context, cfg Config, i int, counters *Counters, stand func()) error {
	ep, err := newEpoll()
	if err != nil {
		return err
	}
	defer ep.close()
	if cfg.Kind == UDP {
		return runUDP(ctx, cfg, ep, i, counters, stand)
	}
	t := &tcp{cfg: cfg, ep: ep, thread: i, pattern: newPattern(), buf: make([]byte, 2*chunk), count: counters.of(i)}
	defer t.close()
	return t.run(ctx, stand)
}
