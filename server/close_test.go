package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// A peer that ends its stream can be answered after that.
func TestHalfClose(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				n, err := c.Read(buf[:4])
				c.Value.got = append(c.Value.got, buf[:n]...)
				if err == io.EOF {
					if _, err := c.Read(buf); err != io.EOF {
						t.Errorf("Read after the end = %v", err)
					}
					go func() { // later, from elsewhere
						c.Write([]byte("you said " + string(c.Value.got)))
						if err := c.CloseWrite(); err != nil {
							t.Error(err)
						}
						if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
							t.Errorf("Write after CloseWrite = %v", err)
						}
					}()
					return nil
				}
				if err != nil {
					return err
				}
			}
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		send(t, c, "one two ")
		send(t, c, "three")
		c.CloseWrite()
		expect(t, c, "you said one two three")
		expectEnd(t, c, io.EOF)
		h.wantCause(1, nil)
	})
}

// A reset by the peer ends the connection in any state.
func TestReset(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, when := range []string{"idle", "paused", "after its end", "queued"} {
			t.Run(when, func(t *testing.T) {
				h := &handler{t: t, data: func(c conn, buf []byte) error {
					for {
						if _, err := c.Read(buf); err == io.EOF {
							c.Write([]byte("ok"))
							return nil
						} else if err != nil {
							return err
						}
					}
				}}
				s := &srv{Handler: h, Backend: backend}
				c := dial(t, start(t, s))
				switch when {
				case "paused":
					h.conn(1).Pause()
				case "after its end":
					c.CloseWrite()
					expect(t, c, "ok")
				case "queued":
					fill(t, h.conn(1))
				}
				c.SetLinger(0)
				c.Close()
				if err := h.cause(1); !isLost(err) || when == "idle" && errors.Is(err, syscall.EPIPE) {
					t.Errorf("cause %v", err)
				}
			})
		}
	})
}

// Close sends the queued bytes; Abort does not.
func TestClose(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, from := range []string{"handler", "outside"} {
			for _, abort := range []bool{false, true} {
				t.Run(fmt.Sprint(from, " abort=", abort), func(t *testing.T) {
					h := &handler{t: t, data: func(c conn, buf []byte) error {
						if abort {
							return c.Abort()
						}
						c.Read(buf) // or closing resets
						return c.Close()
					}}
					s := &srv{Handler: h, Backend: backend}
					c := dial(t, start(t, s))
					total := fill(t, h.conn(1))
					switch {
					case from == "handler":
						send(t, c, "x")
					case abort:
						h.conn(1).Abort()
					default:
						h.conn(1).Close()
					}
					n, err := io.Copy(io.Discard, c)
					if abort {
						if !isReset(err) && !(err == nil && n < int64(total) && wine.ForgetsReset.Here()) {
							t.Errorf("%d bytes, %v", n, err)
						}
					} else if int(n) != total || err != nil {
						t.Errorf("%d bytes of %d, %v", n, total, err)
					}
					h.wantCause(1, nil)
					if err := h.conn(1).Close(); !errors.Is(err, net.ErrClosed) {
						t.Errorf("second Close = %v", err)
					}
				})
			}
		}
	})
}

// Connections are closed by several goroutines and by their peers while their handlers run.
func TestCloseRaces(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		before := handles.List()
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, Workers: 4}
		addr := start(t, s)
		var wg sync.WaitGroup
		const rounds = 60
		for i := range 4 * rounds {
			c := dial(t, addr)
			wg.Go(func() {
				for {
					if _, err := c.Write([]byte("hello")); err != nil {
						break
					}
					if _, err := c.Read(make([]byte, 100)); err != nil {
						break
					}
				}
				c.Close()
			})
			sc := h.conn(i + 1)
			for k := range 2 {
				wg.Go(func() {
					await.UpTo(3 * time.Millisecond)
					if (i+k)%2 == 0 {
						sc.Close()
					} else {
						sc.Abort()
					}
				})
			}
		}
		wg.Wait()
		wait(t, func() bool { return s.Stats().Conns == 0 })
		s.Close()
		shutdown(t, s)
		handles.Settle(t, before, soon)
	})
}
