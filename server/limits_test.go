package server_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"bytes"
	"log/slog"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// flood connects until something of it is turned away, and returns the connections that were served.
func flood(t *testing.T, addr string, n int) (served []net.Conn) {
	t.Helper()
	for range n {
		c := dial(t, addr)
		if _, err := c.Write([]byte("hello")); err == nil {
			if n, _ := io.ReadFull(c, make([]byte, 5)); n == 5 {
				served = append(served, c)
				continue
			}
		}
		c.Close()
	}
	return served
}

func TestMaxConns(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxConns: 10}
		addr := start(t, s)
		served := flood(t, addr, 50)
		if st := s.Stats(); len(served) != 10 || st.Refused != 40 || st.Accepted != 10 {
			t.Errorf("%d served, %+v", len(served), st)
		}
		served[0].Close() // makes room
		wait(t, func() bool { return s.Stats().Conns == 9 })
		if n := len(flood(t, addr, 3)); n != 1 {
			t.Errorf("%d served", n)
		}
	})
}

func TestMaxConnsPerAddr(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		s := &srv{Handler: &handler{t: t}, Backend: backend, MaxConnsPerAddr: 5}
		addr := start(t, s)
		if served := flood(t, addr, 20); len(served) != 5 {
			t.Errorf("%d served", len(served))
		}
		other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: soon}
		c, err := other.Dial("tcp", addr)
		if err != nil {
			t.Skip("this system has one loopback address")
		}
		defer c.Close()
		send(t, c, "hello")
		expect(t, c, "hello")
	})
}

func TestMaxQueued(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, MaxQueued: 100_000}
		c := dial(t, start(t, s))
		sc := h.conn(1)
		var err error
		for b := make([]byte, 1<<16); err == nil; {
			_, err = sc.Write(b)
		}
		if err != server.ErrOverload {
			t.Errorf("Write = %v", err)
		}
		if err := h.cause(1); err != server.ErrOverload {
			t.Errorf("cause %v", err)
		}
		io.Copy(io.Discard, c)
		wait(t, func() bool { st := s.Stats(); return st.Overloads == 1 && st.Queued == 0 })
	})
}

func TestIdleTimeout(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, IdleTimeout: 300 * time.Millisecond}
		addr := start(t, s)
		from := time.Now()
		silent, lively, exempt := dial(t, addr), dial(t, addr), dial(t, addr)
		h.conn(3)
		for _, sc := range []conn{h.conn(1), h.conn(2), h.conn(3)} {
			if sc.RemoteAddr().String() == exempt.LocalAddr().String() {
				sc.SetIdleTimeout(0)
			}
		}
		ended := make(chan time.Duration, 1)
		go func() {
			silent.Read(make([]byte, 1))
			ended <- time.Since(from)
		}()
		for over := false; !over; {
			send(t, lively, "x")
			expect(t, lively, "x")
			select {
			case d := <-ended:
				if over = true; d < s.IdleTimeout {
					t.Errorf("closed after %v", d)
				}
			default:
			}
		}
		if err := h.cause(1); err != server.ErrIdle || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("cause %v", err)
		}
		send(t, exempt, "x")
		expect(t, exempt, "x")
		if n := s.Stats().Idle; n != 1 {
			t.Errorf("%d were idle", n)
		}
		expectEnd(t, lively, io.EOF)
	})
}

// A peer that takes nothing of what is queued is given up, before Close and after it.
func TestWriteTimeout(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for _, closing := range []bool{false, true} {
			h := &handler{t: t}
			s := &srv{Handler: h, Backend: backend, WriteTimeout: 100 * time.Millisecond}
			dial(t, start(t, s))
			sc := h.conn(1)
			fill(t, sc)
			if closing {
				sc.Close()
			}
			if err := h.cause(1); err != server.ErrSlow {
				t.Errorf("cause %v", err)
			}
			wait(t, func() bool { st := s.Stats(); return st.Slow == 1 && st.Queued == 0 && st.Conns == 0 })
		}
	})
}

// A panic closes its connection, is told once with its stack, and hurts nothing else.
func TestPanic(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		for _, where := range []string{"open", "data", "close", "exit"} {
			t.Run(where, func(t *testing.T) {
				var mu sync.Mutex
				var log bytes.Buffer
				boom := func(c conn) {
					if where == "exit" {
						runtime.Goexit()
					}
					panic("boom")
				}
				h := &handler{t: t}
				h.open = func(c conn) error {
					if where == "open" && len(h.conns) == 2 {
						boom(c)
					}
					return nil
				}
				h.data = func(c conn, buf []byte) error {
					n, err := c.Read(buf)
					if err != nil {
						return err
					}
					if string(buf[:n]) == "boom" {
						if where == "close" {
							return io.EOF
						}
						boom(c)
					}
					_, err = c.Write(buf[:n])
					return err
				}
				h.closed = func(c conn, cause error) {
					if where == "close" && cause == nil && len(h.causes) == 1 {
						boom(c)
					}
				}
				s := &srv{Handler: h, Backend: backend, Workers: 1, Logger: slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))}
				addr := start(t, s)
				good := dial(t, addr)
				send(t, good, "hello")
				expect(t, good, "hello")
				bad := dial(t, addr)
				bad.Write([]byte("boom"))
				if n, err := bad.Read(make([]byte, 10)); err == nil {
					t.Errorf("%d bytes", n)
				}
				cause := h.cause(1)
				var p *server.PanicError
				if where != "close" && (!errors.As(cause, &p) || where != "exit" && (p.Value != "boom" || !strings.Contains(string(p.Stack), "limits_test.go"))) {
					t.Errorf("cause %v", cause)
				}
				send(t, good, "hello")
				expect(t, good, "hello")
				wait(t, func() bool { return s.Stats().Conns == 1 })
				mu.Lock()
				defer mu.Unlock()
				if n := strings.Count(log.String(), "handler panicked"); n != 1 || s.Stats().Panics != 1 || !strings.Contains(log.String(), "limits_test.go") {
					t.Errorf("logged %d times: %s", n, log.String())
				}
			})
		}
	})
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// Handlers that do not return, more of them than there are workers, can be seen, and the rest is served.
func TestStuck(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		var mu sync.Mutex
		var log bytes.Buffer
		release := make(chan struct{})
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			if buf[0] == '!' {
				<-release
			}
			_, err = c.Write(buf[:n])
			return err
		}}
		s := &srv{Handler: h, Backend: backend, Workers: 2, StuckAfter: 300 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(locked{&mu, &log}, nil))}
		addr := start(t, s)
		var stuck, good []net.Conn
		for range 5 {
			stuck = append(stuck, dial(t, addr))
		}
		for range 200 {
			good = append(good, dial(t, addr))
		}
		h.conn(205)
		for range 3 {
			for i, c := range good { // those that are dequeued together with one that does not return as well
				if i%40 == 0 && len(stuck) > i/40 {
					stuck[i/40].Write([]byte("!"))
				}
				send(t, c, "hello")
			}
			for _, c := range good {
				expect(t, c, "hello")
			}
		}
		wait(t, func() bool { st := s.Stats(); return st.Stuck == 5 && st.Longest >= s.StuckAfter })
		mu.Lock()
		if n := strings.Count(log.String(), "does not return"); n != 5 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		mu.Unlock()
		close(release)
		for _, c := range stuck {
			expect(t, c, "!")
		}
		wait(t, func() bool { st := s.Stats(); return st.Workers == 2 && st.Longest < s.StuckAfter })
	})
}

// A request is handed to a goroutine, and the connection given back.
func TestPause(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf[:5])
			if err != nil {
				return err
			}
			c.Pause()
			request := string(buf[:n])
			go func() {
				c.Write([]byte(strings.ToUpper(request)))
				c.Resume()
			}()
			return nil
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		for range 200 {
			send(t, c, "helloworld") // two requests
			expect(t, c, "HELLOWORLD")
		}
	})
}

// While a connection is paused it is not idle, and can be closed.
func TestPausedAndClosed(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend}
		addr := start(t, s)
		c := dial(t, addr)
		paused := h.conn(1)
		dial(t, addr)
		paused.Pause()
		paused.SetIdleTimeout(50 * time.Millisecond)
		h.conn(2).SetIdleTimeout(200 * time.Millisecond)
		if err := h.cause(1); err != server.ErrIdle {
			t.Errorf("cause %v", err)
		}
		if st := s.Stats(); st.Conns != 1 {
			t.Errorf("%+v", st)
		}
		paused.Close()
		expectEnd(t, c, io.EOF)
		if err := h.cause(2); err != nil {
			t.Errorf("cause %v", err)
		}
	})
}

// A connection goes to a goroutine that blocks, and back, again and again.
func TestHijack(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		before := descriptors(t)
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1])
			if err != nil {
				return err
			}
			if buf[0] != 'h' {
				_, err = c.Write(buf[:n])
				return err
			}
			nc, err := c.Hijack()
			if err != nil {
				return err
			}
			if _, err := c.Read(buf); err == nil || err == sock.ErrWouldBlock {
				t.Errorf("Read of a hijacked connection = %v", err)
			}
			if _, err := c.Write(buf[:1]); err == nil {
				t.Error("Write to a hijacked connection is no error")
			}
			if _, err := c.Hijack(); err == nil {
				t.Error("a second Hijack is no error")
			}
			go func() {
				var line [6]byte
				if _, err := io.ReadFull(nc, line[:]); err != nil {
					t.Error(err)
				}
				nc.Write([]byte("got " + string(line[:])))
				if string(line[:]) == "finish" {
					nc.Close()
				} else if err := c.Resume(); err != nil {
					t.Error(err)
				}
			}()
			return nil
		}}
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		for range 50 {
			send(t, c, "xh")
			expect(t, c, "x")
			send(t, c, "line-1x") // the last one is for the server again
			expect(t, c, "got line-1x")
		}
		if _, err := h.conn(1).Hijack(); err == nil {
			t.Error("Hijack from outside is no error")
		}
		send(t, c, "hfinish")
		expect(t, c, "got finish")
		expectEnd(t, c, io.EOF)
		if err := h.cause(1); err != nil {
			t.Errorf("cause %v", err)
		}
		c.Close()
		s.Close()
		shutdown(t, s)
		wait(t, func() bool { return descriptors(t) <= before })
	})
}

// Close of the server ends hijacked connections too.
func TestHijackedAndClosed(t *testing.T) {
	each(t, func(t *testing.T, backend string) {
		got := make(chan error, 1)
		h := &handler{t: t, open: func(c conn) error {
			nc, err := c.Hijack()
			if err != nil {
				return err
			}
			go func() {
				_, err := nc.Read(make([]byte, 1))
				got <- err
				if err := c.Resume(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("Resume = %v", err)
				}
			}()
			return nil
		}}
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		h.conn(1)
		s.Close()
		if err := <-got; !errors.Is(err, net.ErrClosed) && err != io.EOF {
			t.Errorf("Read = %v", err)
		}
		expectEnd(t, c, io.EOF)
		if err := h.cause(1); err != server.ErrServerClosed {
			t.Errorf("cause %v", err)
		}
		shutdown(t, s)
	})
}
