package sock_test

import (
	"testing"

	"github.com/socknotify/socknotify"
	core "github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

const (
	oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot
	edge    = socknotify.TriggerEdge
	once    = edge | socknotify.TriggerOneShot

	eventIn     = socknotify.EventIn
	eventOut    = socknotify.EventOut
	eventHangup = socknotify.EventHangup
	eventErr    = socknotify.EventErr
)

type port struct {
	*socknotify.Port[string]
	t *testing.T
}

// onPorts runs a test with a port of each backend.
func onPorts(t *testing.T, f func(t *testing.T, p port)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		p, err := socknotify.New[string](socknotify.WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		f(t, port{p, t})
	})
}

// enable enables a socket and reports whether that was a fast enable, without a system call.
func (p port) enable(s *sock.Socket, filter socknotify.Events, trigger socknotify.Trigger) (saved bool) {
	p.t.Helper()
	before := p.Stats()
	regs := []socknotify.Registration[string]{socknotify.Enable(s, "key", filter, trigger)}
	if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
		p.t.Fatal(err, regs[0].Result)
	}
	after := p.Stats()
	return after.FastEnables == before.FastEnables+1 && after.Rearms == before.Rearms
}

// next waits for a notification.
func (p port) next() socknotify.Events {
	p.t.Helper()
	var out [1]socknotify.Notification[string]
	if n, err := p.Process(nil, out[:], timeout); n != 1 || err != nil {
		p.t.Fatalf("Wait = %d, %v", n, err)
	}
	return out[0].Events
}

// poll dequeues a notification if there is one.
func (p port) poll() (int, error) {
	return p.Process(nil, make([]socknotify.Notification[string], 1), 0)
}

// wantEmpty verifies that nothing can be dequeued.
func (p port) wantEmpty() {
	p.t.Helper()
	var out [1]socknotify.Notification[string]
	if n, err := p.Process(nil, out[:], 0); n != 0 || err != socknotify.ErrTimeout {
		p.t.Fatalf("Wait = %d, %v, %v", n, err, out[0].Events)
	}
}

// remove removes a socket's registration and its queued notifications.
func (p port) remove(s *sock.Socket) {
	p.t.Helper()
	if _, err := p.Deregister(socknotify.Remove[string](s)); err != nil {
		p.t.Fatal(err)
	}
}

// edges reports whether enabling a drained socket costs no system call on this port.
func (p port) edges() bool { return core.Of(p.Port).Core.OwnEdges }
