package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// The system reports a reset to one call. The cause of the connection is the reset whichever call that was, and no Read
// takes the reset for the end of the stream.
func TestResetCause(t *testing.T) {
	if wine.ForgetsReset.Here() {
		t.Skip(wine.ForgetsReset)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, mode := range []string{"write", "write and read", "write and paused read", "write twice and end"} {
			t.Run(mode, func(t *testing.T) {
				conns := long.Or(120, 16)
				var wg sync.WaitGroup
				ended := func(err error) bool {
					if errors.Is(err, io.EOF) {
						t.Error("Read takes the reset for an end")
					}
					return err != nil && err != sock.ErrWouldBlock
				}
				write := func(c conn) {
					wg.Go(func() {
						for {
							switch _, err := c.Write([]byte("some bytes")); {
							case errors.Is(err, net.ErrClosed):
								return
							case err == server.ErrQueueFull:
								await.Pause(100 * time.Microsecond)
							}
						}
					})
				}
				h := &handler{t: t}
				h.open = func(c conn) error {
					write(c)
					switch mode {
					case "write and paused read":
						c.Pause()
						wg.Go(func() {
							var b [100]byte
							for {
								if _, err := c.Read(b[:]); ended(err) {
									return
								}
							}
						})
					case "write twice and end":
						write(c)
						wg.Go(func() {
							await.UpTo(2 * time.Millisecond)
							c.CloseWrite()
						})
					}
					return nil
				}
				h.data = func(c conn, buf []byte) error {
					for {
						if _, err := c.Read(buf); err != nil {
							ended(err)
							return nil // and no cause of the handler's
						}
					}
				}
				addr := start(t, &srv{Handler: h, Backend: backend, Workers: 2})
				const atOnce = 8
				var clients sync.WaitGroup
				for i := range atOnce {
					clients.Go(func() {
						for range conns / atOnce {
							c, err := net.Dial("tcp", addr)
							if err != nil {
								t.Error(err)
								return
							}
							if i%2 == 0 {
								c.Write([]byte("hello"))
							}
							await.UpTo(time.Millisecond)
							if i%4 < 2 {
								go io.Copy(io.Discard, c) // or its window is full
								await.UpTo(time.Millisecond)
							}
							c.(*net.TCPConn).SetLinger(0)
							c.Close()
						}
					})
				}
				clients.Wait()
				wait(t, func() bool { return len(h.told()) == conns })
				wg.Wait()
				causes := map[string]int{}
				for _, err := range h.told() {
					if !isReset(err) {
						causes[fmt.Sprint(err)]++
					}
				}
				if len(causes) > 0 {
					t.Errorf("of %d: %v", conns, causes)
				}
			})
		}
	})
}
