package socknotify

import (
	"errors"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/leaks"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	oneShot    = TriggerLevel | TriggerOneShot
	persistent = TriggerLevel | TriggerPersistent
	// soon is how long a test waits for what must come before it gives up.
	soon = time.Minute
)

type hooked = backendtest.Hooked

// onEach runs a test on every kernel, with a hook to set.
func onEach(t *testing.T, f func(t *testing.T, p *Port[string], h *hooked)) { onEachOf(t, f) }

// onEachOf is onEach with another type of keys.
func onEachOf[K comparable](t *testing.T, f func(t *testing.T, p *Port[K], h *hooked)) {
	for _, b := range backendtest.List(t) {
		t.Run(b.Name, func(t *testing.T) {
			k, err := b.Open()
			if err != nil {
				t.Fatal(err)
			}
			h := &hooked{Poller: k}
			p := newPort[K](h, b.Name)
			t.Cleanup(func() { p.Close() })
			p.port.Core.Watching.Store(true) // as if it had had sockets
			f(t, p, h)
		})
	}
}

func newPair(t *testing.T) (x, y *sock.Socket) {
	t.Helper()
	x, y, err := backendtest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// newClient is a socket that connects to a listener, and may not have yet.
func newClient(t *testing.T, l *sock.Socket) *sock.Socket {
	t.Helper()
	c, err := sock.New(sock.TCP4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	return c
}

// do processes one entry and fails on its Result.
func do[K comparable](t *testing.T, p *Port[K], r Registration[K]) {
	t.Helper()
	regs := []Registration[K]{r}
	if _, err := p.Process(regs, nil, 0); err != nil {
		t.Fatal(err)
	}
	if regs[0].Result != nil {
		t.Fatal(regs[0].Result)
	}
}

func send(t *testing.T, s *sock.Socket) {
	t.Helper()
	if _, err := s.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
}

// drain receives until the socket would block.
func drain(t *testing.T, s *sock.Socket) {
	t.Helper()
	var buf [64]byte
	for {
		if _, err := s.Recv(buf[:]); errors.Is(err, sock.ErrWouldBlock) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// next waits for one notification.
func next[K comparable](t *testing.T, p *Port[K]) Notification[K] {
	t.Helper()
	var out [1]Notification[K]
	if n, err := p.Process(nil, out[:], soon); n != 1 || err != nil {
		t.Fatalf("Wait = %d, %v; want a notification", n, err)
	}
	return out[0]
}

// none checks that nothing can be dequeued now.
func none[K comparable](t *testing.T, p *Port[K]) {
	t.Helper()
	var out [1]Notification[K]
	if n, err := p.Process(nil, out[:], 0); n != 0 || err != ErrTimeout {
		t.Fatalf("Wait = %d, %v, %+v; want nothing", n, err, out[0])
	}
}

// eventually waits for a state that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	await.Until(t, what, ok)
}

// newTCP makes a TCP connection, whose short receives drain it.
func newTCP(t *testing.T) (x, y *sock.Socket) {
	t.Helper()
	x, y, err := backendtest.TCPPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}
