package server_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// A panic closes its connection, is logged once with its stack, and affects no other connection.
func TestPanic(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, where := range []string{"open", "data", "close", "exit"} {
			t.Run(where, func(t *testing.T) {
				var log logged
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
				h.data = reading(func(c conn, text string) error {
					if text == "boom" {
						if where == "close" {
							return io.EOF
						}
						boom(c)
					}
					return write(c, text)
				})
				h.closed = func(c conn, cause error) {
					if where == "close" && cause == nil && len(h.causes) == 1 {
						boom(c)
					}
				}
				s := &srv{Handler: h, Backend: backend, Workers: 1, Logger: log.logger()}
				addr := start(t, s)
				good := dial(t, addr)
				echoes(t, good, "hello")
				boomed(t, addr)
				cause := h.cause(1)
				var p *server.PanicError
				if where != "close" && (!errors.As(cause, &p) || where != "exit" && (p.Value != "boom" || !strings.Contains(string(p.Stack), "panic_test.go"))) {
					t.Errorf("cause %v", cause)
				}
				echoes(t, good, "hello")
				wait(t, func() bool { return s.Stats().Conns == 1 })
				if n := log.count("handler panicked"); n != 1 || s.Stats().Panics != 1 || !strings.Contains(log.String(), "panic_test.go") {
					t.Errorf("logged %d times: %s", n, &log)
				}
			})
		}
	})
}

// boomed makes a connection whose handler panics, and expects its end.
func boomed(t *testing.T, addr string) {
	t.Helper()
	bad := dial(t, addr)
	bad.Write([]byte("boom"))
	if n, err := bad.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes", n)
	}
}

// A handler may panic in a call and again in Close. The program continues, even if the connection has no registration,
// before Open has returned and after Hijack, so that Close could follow at once.
func TestPanicTwice(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for name, boom := range map[string]func(){"panic": func() { panic("boom") }, "exit": runtime.Goexit} {
			for _, where := range []string{"open", "hijacked"} {
				t.Run(name+" "+where, func(t *testing.T) {
					h := &handler{t: t}
					h.open = func(c conn) error {
						if where == "open" && len(h.conns) > 1 {
							boom()
						}
						return nil
					}
					h.data = reading(func(c conn, text string) error {
						if text == "boom" {
							if _, err := c.Hijack(); err != nil {
								t.Error(err)
							}
							boom()
						}
						return write(c, text)
					})
					h.closed = func(c conn, cause error) {
						if _, ok := cause.(*server.PanicError); ok {
							boom()
						}
					}
					s := &srv{Handler: h, Backend: backend, Workers: 1}
					addr := start(t, s)
					good := dial(t, addr)
					echoes(t, good, "hello")
					boomed(t, addr)
					wait(t, func() bool { return s.Stats().Conns == 1 })
					if st := s.Stats(); st.Panics != 2 {
						t.Errorf("%+v", st)
					}
					echoes(t, good, "hello")
				})
			}
		}
	})
}
