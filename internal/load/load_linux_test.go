package load_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// serve calls handle for every connection, with its number, and closes it afterwards.
func serve(t *testing.T, handle func(c *net.TCPConn, i int)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for i := 0; ; i++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn), i)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// echo sends back what it receives, until an error, which is io.EOF at the end. It passes the
// number of bytes to told before.
func echo(c net.Conn, told func(n int)) error {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		told(n)
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
	}
}

// A meter cancels a context when a number of bytes was received.
type meter struct {
	bytes  atomic.Int64
	limit  int64
	cancel context.CancelFunc
}

func newMeter(t *testing.T, limit int64) (context.Context, *meter) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, &meter{limit: limit, cancel: cancel}
}

func (m *meter) add(n int) {
	if m.bytes.Add(int64(n)) >= m.limit {
		m.cancel()
	}
}

// config returns a configuration without any limit that could end a test.
func config(backend, addr string) load.Config {
	return load.Config{
		Backend: backend, Addr: addr,
		Connections: 1, Size: 64, Depth: 1, Workers: 2,
		Duration: time.Minute, Timeout: time.Minute, Drain: time.Minute,
	}
}

// check verifies what holds for every result.
func check(t *testing.T, cfg load.Config, res load.Result, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	if res.Bytes != res.Requests*int64(cfg.Size) {
		t.Errorf("%d requests of %d bytes, %d bytes", res.Requests, cfg.Size, res.Bytes)
	}
	if (res.First == nil) != (res.Errors == 0) {
		t.Errorf("%d errors, first %v", res.Errors, res.First)
	}
	q := []time.Duration{0, res.P50, res.P90, res.P99, res.P999, res.Max, res.Elapsed}
	if cfg.Rate > 0 {
		q = q[:6]
	}
	for i := 1; i < len(q); i++ {
		if q[i] < q[i-1] || res.Requests > 0 && q[i] == 0 {
			t.Errorf("quantiles and time %v", q)
			break
		}
	}
}

func healthy(t *testing.T, cfg load.Config, res load.Result, err error) {
	t.Helper()
	check(t, cfg, res, err)
	if res.Errors != 0 {
		t.Errorf("%d errors: %v", res.Errors, res.First)
	}
	if res.Connections != cfg.Connections {
		t.Errorf("%d connections of %d", res.Connections, cfg.Connections)
	}
}

// Every request is answered and counted: what the server echoed is what was counted. With TLS each
// connection ends with a close_notify.
func TestAnswers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			set   func(*load.Config)
			bytes int64
			tls   bool // with TLS, too
		}{
			"one":         {func(*load.Config) {}, 64 * 500, false},
			"one byte":    {func(c *load.Config) { c.Size, c.Connections = 1, 3 }, 500, false},
			"many":        {func(c *load.Config) { c.Connections = 200 }, 64 * 2000, true},
			"one worker":  {func(c *load.Config) { c.Connections, c.Workers = 5, 1 }, 64 * 500, false},
			"few":         {func(c *load.Config) { c.Connections, c.Workers = 2, 10 }, 64 * 500, false},
			"depth":       {func(c *load.Config) { c.Connections, c.Depth = 10, 16 }, 64 * 5000, true},
			"period":      {func(c *load.Config) { c.Connections, c.Size, c.Depth = 2, 65_521, 3 }, 65_521 * 50, false},
			"large":       {func(c *load.Config) { c.Connections, c.Size, c.Depth = 3, 1<<20, 4 }, 60 << 20, true},
			"rate":        {func(c *load.Config) { c.Connections, c.Rate = 10, 5000 }, 64 * 500, false},
			"rate, depth": {func(c *load.Config) { c.Connections, c.Depth, c.Rate = 4, 8, 20_000 }, 64 * 2000, false},
			"think":       {func(c *load.Config) { c.Connections, c.Depth, c.Think = 20, 3, time.Millisecond }, 64 * 600, true},
			"rate, think": {func(c *load.Config) { c.Connections, c.Rate, c.Think = 10, 5000, time.Millisecond }, 64 * 500, false},
		} {
			for _, version := range []uint16{0, tls.VersionTLS12, tls.VersionTLS13} {
				name := name
				switch {
				case version != 0 && !c.tls:
					continue
				case version != 0:
					name += ", " + tls.VersionName(version)
				}
				t.Run(name, func(t *testing.T) {
					ctx, m := newMeter(t, c.bytes)
					server, client := certified(t, version)
					ends := make(chan error, 200)
					cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) {
						var conn net.Conn = c
						if version != 0 {
							conn = tls.Server(c, server)
						}
						ends <- echo(conn, m.add)
					}))
					if version != 0 {
						cfg.TLS = client
					}
					c.set(&cfg)
					res, err := load.Run(ctx, cfg, nil)
					healthy(t, cfg, res, err)
					if n := m.bytes.Load(); res.Bytes != n {
						t.Errorf("counted %d bytes, the server %d", res.Bytes, n)
					}
					for range cfg.Connections {
						if err := <-ends; err != io.EOF && version != 0 {
							t.Errorf("a connection ended with %v", err)
						}
					}
				})
			}
		}
	})
}

// A duration that is over before a worker runs does not keep connections from sending what is due at the beginning.
func TestDurationIsOver(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) { echo(c, func(int) {}) }))
		cfg.Connections, cfg.Depth, cfg.Duration = 200, 4, 1
		res, err := load.Run(t.Context(), cfg, nil)
		healthy(t, cfg, res, err)
		if res.Requests < 200*4 {
			t.Errorf("%d requests", res.Requests)
		}
	})
}

// With a rate the latency of a request includes the time for which earlier answers delayed it.
func TestLatencyFromSchedule(t *testing.T) {
	const slow, requests = 20 * time.Millisecond, 5
	backendtest.Each(t, func(t *testing.T, backend string) {
		ctx, m := newMeter(t, 64*requests)
		cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) {
			b := make([]byte, 64)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				m.add(len(b))
				time.Sleep(slow) // the latency that is measured
				c.Write(b)
			}
		}))
		cfg.Rate = 200 // every 5 ms
		res, err := load.Run(ctx, cfg, nil)
		healthy(t, cfg, res, err)
		n := time.Duration(res.Requests)
		if least := n*slow - (n-1)*5*time.Millisecond; n < requests || res.Max < least {
			t.Errorf("%d requests, the longest took %v, less than %v", n, res.Max, least)
		}
	})
}

// The pause between an answer and the next request is not shorter than asked for.
func TestThink(t *testing.T) {
	const think = 20 * time.Millisecond
	backendtest.Each(t, func(t *testing.T, backend string) {
		ctx, m := newMeter(t, 64*10)
		var early atomic.Int64
		cfg := config(backend, serve(t, func(c *net.TCPConn, _ int) {
			b := make([]byte, 64)
			var answered time.Time
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if !answered.IsZero() && time.Since(answered) < think {
					early.Add(1)
				}
				m.add(len(b))
				answered = time.Now()
				c.Write(b)
			}
		}))
		cfg.Connections, cfg.Think = 3, think
		res, err := load.Run(ctx, cfg, nil)
		healthy(t, cfg, res, err)
		if n := early.Load(); n > 0 {
			t.Errorf("%d requests were early", n)
		}
	})
}

// An answer that differs from its request in any way is an error of its connection only.
func TestWrongAnswers(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, change := range map[string]func([]byte) []byte{
			"corrupted":  func(b []byte) []byte { b[17] ^= 1; return b },
			"lost":       func(b []byte) []byte { return append(b[:10], b[11:]...) },
			"duplicated": func(b []byte) []byte { return append(b, b...) },
			"swapped":    func(b []byte) []byte { return append(b[64:], b[:64]...) },
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cfg := config(backend, serve(t, func(c *net.TCPConn, i int) {
					if i != 0 {
						echo(c, func(int) {})
						return
					}
					b := make([]byte, 2*64)
					io.ReadFull(c, b)
					c.Write(change(b))
					io.Copy(io.Discard, c) // until the other side gives up
					cancel()
				}))
				cfg.Connections, cfg.Depth = 4, 2
				res, err := load.Run(ctx, cfg, nil)
				check(t, cfg, res, err)
				if res.Errors != 1 {
					t.Errorf("%d errors: %v", res.Errors, res.First)
				}
				if name != "duplicated" && !strings.Contains(res.First.Error(), "wrong answer: byte ") {
					t.Error(res.First)
				}
			})
		}
	})
}

// A connection that the server closes or resets is an error, with or without a request under way.
func TestServerCloses(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, c := range map[string]struct {
			linger int
			think  time.Duration
			is     error
		}{
			"closed":      {-1, 0, nil},
			"reset":       {0, 0, syscall.ECONNRESET},
			"closed idle": {-1, time.Hour, nil},
			"reset idle":  {0, time.Hour, syscall.ECONNRESET},
		} {
			t.Run(name, func(t *testing.T) {
				cfg := config(backend, serve(t, func(conn *net.TCPConn, _ int) {
					b := make([]byte, 64)
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
					conn.Write(b)
					if c.think == 0 {
						io.ReadFull(conn, b)
					}
					conn.SetLinger(c.linger)
				}))
				cfg.Connections, cfg.Think = 3, c.think
				res, err := load.Run(t.Context(), cfg, nil)
				check(t, cfg, res, err)
				if res.Errors != 3 {
					t.Errorf("%d errors", res.Errors)
				}
				if c.linger < 0 && res.Requests != 3 {
					t.Errorf("%d requests", res.Requests)
				}
				if c.is != nil && !errors.Is(res.First, c.is) {
					t.Error(res.First)
				}
			})
		}
	})
}

// Connects to a listener whose backlog is full fail after Timeout.
func TestConnectTimeout(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
			t.Fatal(err)
		}
		sa, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(sa.(*unix.SockaddrInet4).Port))
		for {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				break // full
			}
			defer c.Close()
		}
		cfg := config(backend, addr)
		cfg.Connections, cfg.Timeout = 150, 50*time.Millisecond
		res, err := load.Run(t.Context(), cfg, nil)
		if err == nil || res.Connections != 0 || res.Errors != 150 || !strings.Contains(err.Error(), "50ms") {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// A connection that stops answering is an error at the end of the run, but not if it is slow or the run was cancelled.
// Incomplete answers are not counted.
func TestNoAnswer(t *testing.T) {
	for _, cancelled := range []bool{false, true} {
		t.Run(map[bool]string{false: "duration", true: "cancelled"}[cancelled], func(t *testing.T) {
			t.Parallel()
			ctx, m := newMeter(t, 64*3)
			cfg := config("", serve(t, func(c *net.TCPConn, i int) {
				b := make([]byte, 64)
				io.ReadFull(c, b)
				if cancelled {
					m.add(len(b))
				}
				for slow := b[:63]; i > 0 && len(slow) > 0; slow = slow[1:] {
					if _, err := c.Write(slow[:1]); err != nil {
						break
					}
					time.Sleep(50 * time.Millisecond) // it answers, but for longer than Drain
				}
				io.Copy(io.Discard, c)
			}))
			cfg.Connections, cfg.Drain = 3, time.Second
			if !cancelled {
				cfg.Duration = 100 * time.Millisecond
			}
			res, err := load.Run(ctx, cfg, nil)
			check(t, cfg, res, err)
			switch {
			case cancelled && res.Errors != 0 || !cancelled && res.Errors != 1 || res.Requests != 0:
				t.Errorf("%+v", res)
			case !cancelled && !strings.Contains(res.First.Error(), "no answer"):
				t.Error(res.First)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := config("", serve(t, func(c *net.TCPConn, _ int) { echo(c, func(int) {}) }))
	cfg.Think = 10 * time.Millisecond
	var last load.Totals
	res, err := load.Run(ctx, cfg, func(totals load.Totals) {
		last = totals
		cancel()
	})
	healthy(t, cfg, res, err)
	if last.Elapsed == 0 || last.Requests > res.Requests || last.Bytes != last.Requests*64 {
		t.Errorf("%+v, at the end %+v", last, res)
	}
}

func TestAddresses(t *testing.T) {
	for _, host := range []string{"localhost:", ":", "[::ffff:127.0.0.1]:"} {
		ctx, m := newMeter(t, 64*10)
		_, port, _ := net.SplitHostPort(serve(t, func(c *net.TCPConn, _ int) { echo(c, m.add) }))
		cfg := config("", host+port)
		res, err := load.Run(ctx, cfg, nil)
		healthy(t, cfg, res, err)
	}
	for _, addr := range []string{"nowhere", "127.0.0.1", "127.0.0.1:abacus"} {
		if res, err := load.Run(t.Context(), config("", addr), nil); err == nil || res.Errors != 0 {
			t.Errorf("%s: %+v, %v", addr, res, err)
		}
	}
}
