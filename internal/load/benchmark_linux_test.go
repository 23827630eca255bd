package load_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// With Reconnect each connection carries one request and is reset after its answer.
func TestReconnect(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const size, requests = 64, 300
		ctx, m := newMeter(t, size*requests)
		var wrong, resets atomic.Int64
		t.Cleanup(func() { // after the end of serve
			if wrong.Load() > 0 || resets.Load() < requests {
				t.Errorf("%d resets of %d connections, %d connections with a second request", resets.Load(), requests, wrong.Load())
			}
		})
		cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) {
			b := make([]byte, 2*size)
			n, err := io.ReadFull(c, b[:size])
			if err != nil {
				return // the run is over
			}
			m.add(n)
			c.Write(b[:size])
			switch n, err := c.Read(b); {
			case n > 0:
				wrong.Add(1)
			case errors.Is(err, syscall.ECONNRESET):
				resets.Add(1)
			}
		}))
		cfg.Connections, cfg.Reconnect = 5, true
		res, err := load.Run(ctx, cfg, nil)
		healthy(t, cfg, res, err)
		if res.Requests < requests {
			t.Errorf("%d requests", res.Requests)
		}
	})
}

// Requests bounds the requests of each connection, and Active the connections that send any.
func TestBounds(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			set   func(*load.Config)
			bytes int64 // which are all that ever come
			first int64 // of which the connections without requests get none
		}{
			"requests": {func(c *load.Config) { c.Requests = 2 }, 64 * 2 * 20, 20},
			"rate":     {func(c *load.Config) { c.Requests, c.Rate = 1, 10_000 }, 64 * 20, 20},
			"active":   {func(c *load.Config) { c.Active, c.Requests = 3, 4 }, 64 * 3 * 4, 3},
		} {
			t.Run(name, func(t *testing.T) {
				var counts [4]atomic.Int64
				var used sync.Map
				var connected atomic.Bool
				ctx, m := newMeter(t, c.bytes)
				cfg := config(backend, serve(t, func(c *net.TCPConn, i int) {
					echo(c, func(n int) {
						if !connected.Load() {
							t.Error("a request came before Connected was called")
						}
						used.Store(i, true)
						m.add(n)
					})
				}))
				cfg.Connections, cfg.Workers, cfg.Reset = 20, len(counts), true
				cfg.Answered = func(i int) *atomic.Int64 { return &counts[i] }
				cfg.Connected = func() { connected.Store(true) }
				c.set(&cfg)
				res, err := load.Run(ctx, cfg, nil)
				healthy(t, cfg, res, err)
				var answered, connections int64
				for i := range counts {
					answered += counts[i].Load()
				}
				used.Range(func(any, any) bool { connections++; return true })
				if res.Requests != c.bytes/64 || answered != res.Requests || connections != c.first {
					t.Errorf("%d requests of %d, %d counted by Answered, on %d connections", res.Requests, c.bytes/64, answered, connections)
				}
			})
		}
	})
}

// With Strict the first connection that fails ends the run.
func TestStrict(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		cfg := config(backend, serve(t, func(c *net.TCPConn, i int) {
			if i == 2 {
				io.ReadFull(c, make([]byte, 64))
				return
			}
			echo(c, func(int) {})
		}))
		cfg.Connections, cfg.Strict = 4, true
		res, err := load.Run(t.Context(), cfg, nil)
		if err == nil || err != res.First {
			t.Errorf("%v, first %v", err, res.First)
		}
	})
}
