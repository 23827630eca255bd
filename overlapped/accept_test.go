package overlapped

import (
	"errors"
	"net"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// An acceptance is an accept in flight and its Socket.
type acceptance struct {
	into sock.Socket
	o    Op[string]
}

func (a *acceptance) start(t *testing.T, p *socknotify.Port[string], l *sock.Socket) {
	t.Helper()
	must(t, Accept(p, l, "k", &a.into, &a.o))
	t.Cleanup(func() { a.into.Close() })
}

// has checks that the connection of a client was accepted.
func (a *acceptance) has(t *testing.T, c *sock.Socket) {
	t.Helper()
	if got, want := a.into.RemoteAddr(), c.LocalAddr(); got != want || !got.IsValid() {
		t.Errorf("the connection is from %v, not %v", got, want)
	}
}

// Accepts complete in the order of their starts, whether the connection is there at the start or
// comes later (O3, O15).
func TestAccept(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		l := porttest.Listener(t)
		var a [4]acceptance
		for i := range a[:2] {
			a[i].start(t, p, l)
		}
		none(t, p)
		for i := range a[:2] {
			c := porttest.Client(t, l)
			completes(t, p, &a[i].o, 0, nil)
			a[i].has(t, c)
		}
		none(t, p)
		clients := [2]*sock.Socket{porttest.Client(t, l), porttest.Client(t, l)}
		for i, c := range clients {
			a[2+i].start(t, p, l)
			completes(t, p, &a[2+i].o, 0, nil)
			a[2+i].has(t, c)
		}
		none(t, p)
	})
}

// A canceled accept takes no connection: the next one has it (O8).
func TestAcceptCanceled(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		l := porttest.Listener(t)
		var a [3]acceptance
		for i := range a[:2] {
			a[i].start(t, p, l)
		}
		for i := range a[:2] {
			must(t, Cancel(p, &a[i].o))
			completes(t, p, &a[i].o, 0, ErrCanceled)
			if a[i].into.Handle() != ^uintptr(0) {
				t.Error("the Socket of a canceled accept is open")
			}
		}
		c := porttest.Client(t, l)
		none(t, p)
		a[0].start(t, p, l) // the Op and the Socket may be used again
		completes(t, p, &a[0].o, 0, nil)
		a[0].has(t, c)

		a[2].start(t, p, l)
		must(t, l.Close())
		completes(t, p, &a[2].o, 0, net.ErrClosed)
	})
}

// A listener has operations or connections that are notified (O11).
func TestAcceptOrNotify(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		l := porttest.Listener(t)
		var a acceptance
		must(t, p.Accept(l, "k", 1))
		if err := Accept(p, l, "k", &a.into, &a.o); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("a listener that is given to Accept of the port: %v", err)
		}
		porttest.Do(t, p, socknotify.Remove[string](l))
		if nt := next(t, p); nt.Events != socknotify.EventRemove {
			t.Fatalf("%+v", nt)
		}
		a.start(t, p, l)
		if err := p.Accept(l, "k", 1); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("a listener with an accept in flight: %v", err)
		}
		porttest.Client(t, l)
		completes(t, p, &a.o, 0, nil)
		if err := p.Accept(l, "k", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestAcceptRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		l := porttest.Listener(t)
		open := porttest.Client(t, l)
		var into sock.Socket
		var o Op[string]
		for _, c := range []struct {
			what string
			l    *sock.Socket
			into *sock.Socket
			o    *Op[string]
		}{
			{"no listener", nil, &into, &o},
			{"no Socket", l, nil, &o},
			{"an open Socket", l, open, &o},
			{"no Op", l, &into, nil},
		} {
			if err := Accept(p, c.l, "k", c.into, c.o); !errors.Is(err, socknotify.ErrInvalid) {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		none(t, p)
		var a acceptance
		a.start(t, p, l)
		completes(t, p, &a.o, 0, nil)
		a.has(t, open)
	})
}
