package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// Timers fire in their order, serialised with the handler's other calls, also while the connection is paused.
func TestAfterFunc(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		h := &handler{t: t}
		writing := func(text string) func(c conn) error {
			return func(c conn) error {
				defer h.enter(c)()
				return write(c, text)
			}
		}
		s := &srv{Handler: h, Backend: backend}
		clock := passing(t)
		var stopped *server.Timer
		h.open = func(c conn) error {
			start := clock.Now()
			c.AfterFunc(1200*time.Millisecond, writing("third"))
			c.AfterFunc(100*time.Millisecond, writing("first"))
			c.AfterFunc(100*time.Millisecond, func(c conn) error {
				if d := clock.Since(start); d < 100*time.Millisecond {
					t.Errorf("called after %v", d)
				}
				if !stopped.Stop() || stopped.Stop() {
					t.Error("Stop of a planned timer, and a second Stop")
				}
				return writing("second")(c)
			})
			stopped = c.AfterFunc(1100*time.Millisecond, writing("stopped"))
			c.Pause()
			return nil
		}
		c := connect(s)
		expect(t, c, "firstsecondthird")
		send(t, c, "echo")
		h.conn(1).Resume()
		expect(t, c, "echo")
		timer := h.conn(1).AfterFunc(time.Hour, writing("reset"))
		if !timer.Reset(0) {
			t.Error("Reset of a planned timer returned false")
		}
		expect(t, c, "reset")
		if timer.Stop() || timer.Reset(0) {
			t.Error("a timer that has fired was planned")
		}
		expect(t, c, "reset")
	})
}

// What a timer's function returns acts like what Data returns. A panic closes the connection.
func TestAfterFuncFails(t *testing.T) {
	failure := errors.New("failure")
	for name, c := range map[string]struct {
		f  func(c conn) error
		is func(error) bool
	}{
		"error":  {func(conn) error { return failure }, func(err error) bool { return err == failure }},
		"eof":    {func(conn) error { return io.EOF }, func(err error) bool { return err == nil }},
		"panic":  {func(conn) error { panic("timer") }, func(err error) bool { var e *server.PanicError; return errors.As(err, &e) }},
		"goexit": {func(conn) error { runtime.Goexit(); return nil }, func(err error) bool { var e *server.PanicError; return errors.As(err, &e) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := &handler{t: t, open: func(co conn) error {
				co.AfterFunc(0, c.f)
				co.AfterFunc(time.Hour, func(conn) error { t.Error("called after the end"); return nil })
				return nil
			}}
			dial(t, start(t, &srv{Handler: h, Workers: 1}))
			if err := h.cause(1); !c.is(err) {
				t.Errorf("cause %v", err)
			}
			if h.conn(1).AfterFunc(0, func(conn) error { t.Error("called after Close"); return nil }).Stop() {
				t.Error("a timer of a closed connection was planned")
			}
		})
	}
}

// A timer that is due while the connection is hijacked fires after Resume, and the timers of many connections cause one call
// each.
func TestAfterFuncHijacked(t *testing.T) {
	noHijack(t)
	backendtest.Each(t, func(t *testing.T, backend string) {
		var hijacked atomic.Bool
		h := &handler{t: t, data: reading(func(c conn, _ string) error {
			for range 2 {
				c.AfterFunc(0, func(c conn) error {
					if hijacked.Load() {
						t.Error("called while hijacked")
					}
					c.Write([]byte("timer"))
					return nil
				})
			}
			hijacked.Store(true)
			return hijack(c, func(nc net.Conn) {
				io.ReadFull(nc, make([]byte, 4))
				hijacked.Store(false)
				c.Resume()
			})
		})}
		clock := testclock.Install(t)
		s := &srv{Handler: h, Backend: backend}
		c := dial(t, start(t, s))
		send(t, c, "x")
		wait(t, hijacked.Load)                // what is sent before could be read together with the x
		clock.Advance(150 * time.Millisecond) // the timers are due
		send(t, c, "over")
		expect(t, c, "timertimer")
	})
}

// A periodic timer does not keep an idle connection open.
func TestAfterFuncIsNotActivity(t *testing.T) {
	h := &handler{t: t, open: func(c conn) error {
		var again func(c conn) error
		again = func(c conn) error { c.AfterFunc(0, again); return nil }
		return again(c)
	}}
	s := &srv{Handler: h, IdleTimeout: time.Second}
	passing(t)
	dial(t, start(t, s))
	h.wantCause(1, server.ErrIdle)
}

// Timers that are set, stopped and fire from several goroutines fire at most once, and exactly once if Stop returned false.
func TestAfterFuncConcurrently(t *testing.T) {
	h := &handler{t: t}
	dial(t, start(t, &srv{Handler: h}))
	c := h.conn(1)
	var fired, stopped atomic.Int64
	var wg sync.WaitGroup
	const goroutines, each = 8, 200
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				timer := c.AfterFunc(time.Duration(i%3)*30*time.Millisecond, func(c conn) error {
					defer h.enter(c)()
					fired.Add(1)
					return nil
				})
				if i%2 == 0 {
					if await.Pause(time.Duration(g) * 100 * time.Microsecond); timer.Stop() {
						stopped.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	wait(t, func() bool { return fired.Load()+stopped.Load() == goroutines*each })
}

// The context of a connection is done before the handler's Close is called, with its cause, and while the handler runs if
// the connection was aborted.
func TestContext(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		failure := errors.New("failure")
		for name, end := range map[string]struct {
			data  func(c conn) error
			cause error
		}{
			"close":  {func(c conn) error { return io.EOF }, context.Canceled},
			"error":  {func(c conn) error { return failure }, failure},
			"abort":  {func(c conn) error { c.Abort(); <-c.Context().Done(); return nil }, context.Canceled},
			"server": {nil, server.ErrServerClosed},
		} {
			t.Run(name, func(t *testing.T) {
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: backend}
				var ctx context.Context
				h.data = reading(func(c conn, _ string) error {
					if ctx = c.Context(); ctx.Err() != nil || ctx != c.Context() {
						t.Errorf("the context of an open connection: %v", ctx.Err())
					}
					if end.data != nil {
						return end.data(c)
					}
					s.Close()
					<-ctx.Done() // while the handler runs
					return nil
				})
				h.closed = func(c conn, cause error) {
					if context.Cause(ctx) != end.cause {
						t.Errorf("cause %v, want %v", context.Cause(ctx), end.cause)
					}
				}
				c := connect(s)
				send(t, c, "x")
				h.cause(1)
				late := h.conn(1).Context()
				if late != ctx {
					t.Error("another context after the end")
				}
			})
		}
	})
	h := &handler{t: t}
	c := dial(t, start(t, &srv{Handler: h}))
	h.conn(1)
	c.Close()
	h.cause(1)
	await.Receive(t, "a context that was first asked for after the end is done", h.conn(1).Context().Done())
}

func TestLogValue(t *testing.T) {
	withTLS(t, func(t *testing.T, backend string, connect func(*srv) net.Conn) {
		var buf bytes.Buffer
		done := make(chan struct{})
		h := &handler{t: t, open: func(c conn) error {
			slog.New(slog.NewTextHandler(&buf, nil)).Info("open", "conn", c)
			close(done)
			return nil
		}}
		c := connect(&srv{Handler: h, Backend: backend})
		<-done
		want := "conn.remote=" + c.LocalAddr().String() + " conn.local=" + c.RemoteAddr().String()
		if strings.HasSuffix(t.Name(), "tls") {
			want += ` conn.tls="TLS 1.3"`
		}
		if !strings.HasSuffix(buf.String(), want+"\n") {
			t.Errorf("logged %q, want %q at the end", buf.String(), want)
		}
	})
}
