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
			"requests":       {func(c *load.Config) { c.Requests = 2 }, 64 * 2 * 20, 20},
			"rate":           {func(c *load.Config) { c.Requests, c.Rate = 1, 10_000 }, 64 * 20, 20},
			"active":         {func(c *load.Config) { c.Active, c.Requests = 3, 4 }, 64 * 3 * 4, 3},
			"bursts of five": {func(c *load.Config) { c.Requests, c.Rate, c.Burst = 1, 1000, 5 }, 64 * 20, 20},
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

// The requests of a burst are due together.
func TestBurst(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const burst = 4
		ctx, m := newMeter(t, 64*burst)
		cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) { echo(c, m.add) }))
		// Without bursts the second request would be due after an hour.
		cfg.Connections, cfg.Rate, cfg.Burst = burst, 1./3600, burst
		res, err := load.Run(ctx, cfg, nil)
		healthy(t, cfg, res, err)
		if res.Requests != burst {
			t.Errorf("%d requests", res.Requests)
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

// Every datagram's answer is counted, and datagrams that the server loses are sent again.
func TestUDP(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, lose := range map[string]func(i int) bool{
			"all come": func(int) bool { return false },
			"some":     func(i int) bool { return i%50 == 7 },
			"at first": func(i int) bool { return i < 8 },
		} {
			t.Run(name, func(t *testing.T) {
				c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
				if err != nil {
					t.Fatal(err)
				}
				const size, answers = 64, 600
				ctx, m := newMeter(t, answers*size)
				var serving sync.WaitGroup
				serving.Go(func() {
					b := make([]byte, 2*size)
					for i := 0; ; i++ {
						n, from, err := c.ReadFromUDPAddrPort(b)
						if err != nil {
							return
						}
						if !lose(i) {
							c.WriteToUDPAddrPort(b[:n], from)
							m.add(n)
						}
					}
				})
				cfg := config(backend, c.LocalAddr().String())
				cfg.UDP, cfg.Connections, cfg.Depth = true, 2, 4
				res, err := load.Run(ctx, cfg, nil)
				c.Close()
				serving.Wait()
				if err != nil || res.Errors != 0 || res.Connections != 2 {
					t.Errorf("%+v, %v", res, err)
				}
				// Some answers may be under way at the end.
				if sent := m.bytes.Load() / size; sent < answers || res.Requests > sent || res.Requests < sent/2 {
					t.Errorf("%d requests, the server sent %d answers", res.Requests, sent)
				}
			})
		}
	})
}

// A datagram that comes back changed is an error of its socket.
func TestUDPWrongAnswer(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"corrupted": func(b []byte) []byte { b[5] ^= 1; return b },
		"longer":    func(b []byte) []byte { return append(b, 0) },
		"shorter":   func(b []byte) []byte { return b[:len(b)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var serving sync.WaitGroup
			defer serving.Wait()
			serving.Go(func() {
				b := make([]byte, 64)
				if n, from, err := c.ReadFromUDPAddrPort(b); err == nil {
					c.WriteToUDPAddrPort(change(b[:n:n]), from)
				}
			})
			cfg := config("", c.LocalAddr().String())
			cfg.UDP = true
			res, err := load.Run(t.Context(), cfg, nil)
			if res.Errors != 1 || res.Requests != 0 || res.First == nil {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}
