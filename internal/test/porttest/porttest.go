// Package porttest has what the tests of ports share: ports on every backend, with hooks between
// the backend and the port, and pairs of sockets. Only tests import it.
package porttest

import (
	"errors"
	"runtime"
	"testing"
	"time"

	//lint:ignore ST1001 what is tested has no name of its own here
	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

const (
	OneShot    = TriggerLevel | TriggerOneShot
	Persistent = TriggerLevel | TriggerPersistent
	// Soon is how long a test waits for what must come before it gives up.
	Soon = time.Minute
)

// Hooked is a backend with hooks.
type Hooked = backendtest.Hooked

// OnEach runs a test on every backend, with hooks to set. The port has had a socket.
func OnEach(t *testing.T, f func(t *testing.T, p *Port[string], h *Hooked)) {
	OnEachFresh(t, func(t *testing.T, p *Port[string], h *Hooked) {
		HadSocket(t, p)
		f(t, p, h)
	})
}

// OnEachFresh is OnEach for a port that has never had a socket.
func OnEachFresh(t *testing.T, f func(t *testing.T, p *Port[string], h *Hooked)) {
	for _, b := range backendtest.List(t) {
		t.Run(b.Name, func(t *testing.T) {
			poller, err := b.Open()
			must(t, err)
			h := &Hooked{Poller: poller}
			p, err := New[string](backendtest.On(h, b.Name))
			must(t, err)
			t.Cleanup(func() { p.Close() })
			f(t, p, h)
		})
	}
}

// HadSocket registers a socket and removes it: a port that has had one polls its backend.
func HadSocket[K comparable](t *testing.T, p *Port[K]) {
	t.Helper()
	x, y, err := backendtest.Pair()
	must(t, err)
	defer x.Close()
	defer y.Close()
	var key K
	Do(t, p, EnableHandle(x.Handle(), key, EventNone, OneShot))
	_, err = p.Deregister(RemoveHandle[K](x.Handle()))
	must(t, err)
}

// Pair makes a connected pair of Unix streams, or of TCP where the system has none.
func Pair(t *testing.T) (x, y *sock.Socket) {
	t.Helper()
	return pair(t, backendtest.Pair)
}

// TCPPair makes a TCP connection, whose short receives drain it.
func TCPPair(t *testing.T) (x, y *sock.Socket) {
	t.Helper()
	return pair(t, backendtest.TCPPair)
}

func pair(t *testing.T, made func() (x, y *sock.Socket, err error)) (x, y *sock.Socket) {
	t.Helper()
	x, y, err := made()
	must(t, err)
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// Listener makes a TCP listener.
func Listener(t *testing.T) *sock.Socket {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// Client makes a socket that connects to a listener, and may not have yet.
func Client(t *testing.T, l *sock.Socket) *sock.Socket {
	t.Helper()
	c, err := sock.New(sock.TCP4)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	if err := c.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Do processes one entry and fails on its Result.
func Do[K comparable](t *testing.T, p *Port[K], r Registration[K]) {
	t.Helper()
	regs := []Registration[K]{r}
	_, err := p.Process(regs, nil, 0)
	must(t, err)
	must(t, regs[0].Result)
}

// EnableHandle is Enable of a raw handle.
func EnableHandle[K comparable](h uintptr, key K, filter Events, trigger Trigger) Registration[K] {
	return Registration[K]{Handle: h, Key: key, Filter: filter, Op: OpEnable, Trigger: trigger}
}

// DisableHandle is Disable of a raw handle.
func DisableHandle[K comparable](h uintptr) Registration[K] {
	return Registration[K]{Handle: h, Op: OpDisable}
}

// RemoveHandle is Remove of a raw handle.
func RemoveHandle[K comparable](h uintptr) Registration[K] {
	return Registration[K]{Handle: h, Op: OpRemove}
}

// Send sends one byte.
func Send(t *testing.T, s *sock.Socket) {
	t.Helper()
	_, err := s.Send([]byte("x"))
	must(t, err)
}

// Drain receives until the socket would block.
func Drain(t *testing.T, s *sock.Socket) {
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

// Next waits for one notification.
func Next[K comparable](t *testing.T, p *Port[K]) Notification[K] {
	t.Helper()
	var out [1]Notification[K]
	if n, err := p.Process(nil, out[:], Soon); n != 1 || err != nil {
		t.Fatalf("Process = %d, %v; want a notification", n, err)
	}
	return out[0]
}

// None checks that nothing can be dequeued now.
func None[K comparable](t *testing.T, p *Port[K]) {
	t.Helper()
	var out [1]Notification[K]
	if n, err := p.Process(nil, out[:], 0); n != 0 || err != ErrTimeout {
		t.Fatalf("Process = %d, %v, %+v; want nothing", n, err, out[0])
	}
}

// Waiting waits until n calls wait.
func Waiting[K comparable](t *testing.T, p *Port[K], n int) {
	t.Helper()
	await.Until(t, "calls wait", func() bool { return p.Stats().Waiting == n })
}

// NextHasNumber skips a test whose next socket must get the number of the one that was closed last.
// Package conformance has cases that bring a number back on every system.
func NextHasNumber(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows gives out numbers in an order of its own")
	}
}
