package server

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// A counter is the smallest handler, with a pointer for its state.
type counter struct{}

func (counter) Open(c *Conn[*int]) error { return nil }
func (counter) Data(c *Conn[*int], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}
func (counter) Close(c *Conn[*int], cause error) {}

// servingOn starts a server and returns its address.
func servingOn[S any](tb testing.TB, s *Server[S]) netip.AddrPort {
	tb.Helper()
	l := listenTCP(tb)
	addr := l.LocalAddr()
	servingBy(tb, s, func() error { return s.ServeSocket(l) })
	return addr
}

func listenTCP(tb testing.TB) *sock.Socket {
	tb.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// dialTCP returns a connection that is closed at the end of the test.
func dialTCP(tb testing.TB, addr string) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// servingBy serves until the test ends.
func servingBy[S any](tb testing.TB, s *Server[S], serve func() error) {
	tb.Helper()
	done := make(chan error, 1)
	go func() { done <- serve() }()
	tb.Cleanup(func() {
		s.Close()
		if err := <-done; err != ErrServerClosed {
			tb.Errorf("serving has ended with %v", err)
		}
		if err := s.Shutdown(tb.Context()); err != nil && tb.Context().Err() == nil {
			tb.Error(err)
		}
		<-s.server.stopped
	})
}

// A shard gets another worker if its connections wait while another shard is idle, and not because
// the system has preempted a worker's thread once.
func TestNeedsHelp(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name   string
		idlest time.Duration
		spent  []time.Duration // by batches
		n      int             // notifications of each
		want   bool
	}{
		{"handlers that block", 0, []time.Duration{6 * ms, 6 * ms}, 8, true},
		{"one connection", 0, []time.Duration{6 * ms, 6 * ms}, 1, false},
		{"a thread that was preempted", 0, []time.Duration{ms / 5, 4 * ms, ms / 5, 3 * ms}, 8, false},
		{"a busy shard", 20 * ms, slices.Repeat([]time.Duration{ms / 2}, 92), 8, true},
		{"two busy shards", 30 * ms, slices.Repeat([]time.Duration{ms / 2}, 92), 8, false},
		{"many fast handlers", 0, slices.Repeat([]time.Duration{ms / 2}, 60), 8, false},
	} {
		var l workload
		for _, d := range test.spent {
			l.add(d, test.n)
		}
		if got := l.needsHelp(test.idlest, engine.Tick); got != test.want {
			t.Errorf("%s: %v; want %v", test.name, got, test.want)
		}
	}
}
