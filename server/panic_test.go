package server_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/server"
)

// A panic closes its connection, is logged once with its stack, and affects no other connection.
func TestPanic(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
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
				if where != "close" && (!errors.As(cause, &p) || where != "exit" && (p.Value != "boom" || !strings.Contains(string(p.Stack), "panic_test.go"))) {
					t.Errorf("cause %v", cause)
				}
				send(t, good, "hello")
				expect(t, good, "hello")
				wait(t, func() bool { return s.Stats().Conns == 1 })
				mu.Lock()
				defer mu.Unlock()
				if n := strings.Count(log.String(), "handler panicked"); n != 1 || s.Stats().Panics != 1 || !strings.Contains(log.String(), "panic_test.go") {
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
					h.data = func(c conn, buf []byte) error {
						n, err := c.Read(buf)
						if err != nil {
							return err
						}
						if string(buf[:n]) == "boom" {
							if _, err := c.Hijack(); err != nil {
								t.Error(err)
							}
							boom()
						}
						_, err = c.Write(buf[:n])
						return err
					}
					h.closed = func(c conn, cause error) {
						if _, ok := cause.(*server.PanicError); ok {
							boom()
						}
					}
					s := &srv{Handler: h, Backend: backend, Workers: 1}
					addr := start(t, s)
					good := dial(t, addr)
					send(t, good, "hello")
					expect(t, good, "hello")
					bad := dial(t, addr)
					bad.Write([]byte("boom"))
					if n, err := bad.Read(make([]byte, 10)); err == nil {
						t.Errorf("%d bytes", n)
					}
					wait(t, func() bool { return s.Stats().Conns == 1 })
					if st := s.Stats(); st.Panics != 2 {
						t.Errorf("%+v", st)
					}
					send(t, good, "hello")
					expect(t, good, "hello")
				})
			}
		}
	})
}
