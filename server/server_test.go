package server_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// Many clients send more than the buffers between them hold, over TCP and Unix sockets, on one server.
func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprint("shards=", shards), func(t *testing.T) {
				s := &srv{Handler: &handler{t: t}, Backend: backend, Workers: 3, Shards: shards}
				addr := start(t, s)
				var ul net.Listener
				if !wine.HasNoUnix.Here() {
					var err error
					if ul, err = net.Listen("unix", socketPath(t)); err != nil {
						t.Fatal(err)
					}
					serve(t, s, ul)
				}
				const clients, size = 8, 1 << 20
				var wg sync.WaitGroup
				for i := range clients {
					var c interface {
						net.Conn
						CloseWrite() error
					}
					if i%4 == 0 && ul != nil {
						c = dialOn(t, "unix", ul.Addr().String()).(*net.UnixConn)
					} else {
						c = dial(t, addr)
					}
					want := make([]byte, size)
					rng := rand.New(rand.NewPCG(uint64(i), 1))
					for i := range want {
						want[i] = byte(rng.Uint32())
					}
					wg.Go(func() {
						if _, err := c.Write(want); err != nil {
							t.Error(err)
						}
						c.CloseWrite()
					})
					wg.Go(func() {
						got, err := io.ReadAll(c)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("client %d: %d bytes, %v", i, len(got), err)
						}
					})
				}
				wg.Wait()
				wait(t, func() bool { return s.Stats().Conns == 0 })
				if st := s.Stats(); st.Accepted != clients || st.Panics+st.Refused+st.TimedOut.Slow+st.TimedOut.Idle+st.Overloads != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	})
}

// A handler that reads a byte at a time is called again until all is read.
func TestDataAfterPartialRead(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error { return echo(c, buf[:1]) }}
		addr := start(t, &srv{Handler: h, Backend: backend})
		c := dial(t, addr)
		echoes(t, c, "hello, world")
	})
}

// A handler may read until ErrWouldBlock.
func TestReadUntilWouldBlock(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t, data: func(c conn, buf []byte) error {
			for {
				if err := echo(c, buf[:3]); err != nil {
					return err
				}
			}
		}}
		c := dial(t, start(t, &srv{Handler: h, Backend: backend}))
		for range 100 {
			echoes(t, c, "hello, world")
		}
	})
}
