package rawecho_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/examples/rawecho"
	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/errno"
	"github.com/socknotify/socknotify/internal/leaks"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// serve starts a server; stop ends it and returns what it did.
func serve(t *testing.T, cfg rawecho.Config) (addr string, stop func() rawecho.Totals) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	up := make(chan netip.AddrPort, 1)
	done := make(chan rawecho.Totals, 1)
	cfg.Addr = sock.Loopback
	cfg.Listening = func(a netip.AddrPort) { up <- a }
	cfg.Failed = func(err error) { t.Error(err) }
	go func() {
		totals, err := rawecho.Run(ctx, cfg)
		if err != nil {
			t.Error(err)
			close(up)
		}
		done <- totals
	}()
	stop = sync.OnceValue(func() rawecho.Totals {
		cancel()
		return <-done
	})
	t.Cleanup(func() { stop() })
	a, ok := <-up
	if !ok {
		t.FailNow()
	}
	return a.String(), stop
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

func TestEcho(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		listeners := 2
		if runtime.GOOS == "windows" {
			listeners = 1 // where an address cannot be shared
		}
		addr, stop := serve(t, rawecho.Config{Backend: backend, Workers: 4, Listeners: listeners})
		const clients, size = 16, 2 << 20 // more than the buffers between them take
		var wg sync.WaitGroup
		for i := range clients {
			c := dial(t, addr)
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
		if n := stop(); n.Connections != clients || n.Bytes != clients*size {
			t.Fatalf("%+v", n)
		}
	})
}

// A server that stops ends every connection.
func TestStop(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		addr, stop := serve(t, rawecho.Config{Backend: backend, Workers: 2})
		idle, busy := dial(t, addr), dial(t, addr)
		for _, c := range []*net.TCPConn{idle, busy} {
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
		}
		// The server has more to send back than the buffers take when it stops.
		filled := make(chan struct{})
		go func() {
			defer close(filled)
			b := make([]byte, 1<<20)
			for {
				busy.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
				if _, err := busy.Write(b); err != nil {
					return
				}
			}
		}()
		<-filled
		got := make(chan int64, 1)
		go func() {
			n, err := io.Copy(io.Discard, busy)
			if err != nil && !errors.Is(err, errno.Reset) {
				t.Error(err)
			}
			got <- n
		}()
		totals := stop()
		// What is under way to the server when it closes resets the connection.
		if n := <-got; n+10 > totals.Bytes {
			t.Errorf("%d bytes came, the server sent %d", n+10, totals.Bytes)
		}
		if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("idle connection: %v", err)
		}
		if _, err := net.Dial("tcp", addr); !errors.Is(err, errno.Refused) {
			t.Errorf("dial = %v", err)
		}
	})
}

func TestCannotServe(t *testing.T) {
	addr, _ := serve(t, rawecho.Config{Workers: 1})
	_, err := rawecho.Run(t.Context(), rawecho.Config{Addr: netip.MustParseAddrPort(addr), Workers: 1})
	if !errors.Is(err, errno.InUse) {
		t.Fatalf("%v", err)
	}
	if _, err := rawecho.Run(t.Context(), rawecho.Config{Addr: sock.Loopback, Backend: "none"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("%v", err)
	}
}
