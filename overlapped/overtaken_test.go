package overlapped

import (
	"io"
	"testing"
	"unsafe"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// In the tests below a harvester has taken a report from the kernel. Before it delivers that report, another harvester takes
// and delivers a later one. So a condition that holds now was in the report before the latest, and the latest does not
// mention it: a receive that is short of its buffer must not be taken for one that has drained the socket.

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

// overtake makes the end of a stream arrive, and be delivered, before a report that was taken earlier. got is the
// notification that was delivered.
func overtake(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked, x, y *sock.Socket, got *socknotify.Notification[string]) {
	h.During(func() {
		if err := y.Shutdown(sock.ShutWrite); err != nil {
			t.Error(err)
		}
		if !port.Of(p).Core.OwnEdges {
			return // it is silent
		}
		waitForEnd(t, p, x)
		w := port.Of(p).Begin()
		defer port.Of(p).End(w)
		var out [1]socknotify.Notification[string]
		eventually(t, "its delivery", func() bool { return port.Of(p).Dequeue(w, port.EntriesOf(unsafe.Pointer(&out[0]), 1)) == 1 })
		*got = out[0]
	})
}

func TestLevelOvertaken(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newTCP(t)
		do(t, p, socknotify.Enable(x, "x", socknotify.EventIn, persistent))
		send(t, y)
		var got socknotify.Notification[string]
		overtake(t, p, h, x, y, &got)
		next(t, p)
		var b [64]byte
		if n, err := x.Recv(b[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if nt := next(t, p); nt.Events != socknotify.EventIn {
			t.Fatalf("T1: got %v; want the end of the stream", nt.Events)
		}
		do(t, p, socknotify.Enable(x, "x", socknotify.EventIn, oneShot))
		if nt := next(t, p); nt.Events != socknotify.EventIn {
			t.Fatalf("T4: got %v; want the end of the stream", nt.Events)
		}
	})
}

func TestOperationsOvertaken(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newTCP(t)
		var o Op[string]
		b := make([]byte, 64)
		recv(t, p, x, b[:1], &o)
		none(t, p)
		if _, err := y.Send([]byte("xyz")); err != nil {
			t.Fatal(err)
		}
		var got socknotify.Notification[string]
		overtake(t, p, h, x, y, &got)
		if !port.Of(p).Core.OwnEdges {
			completes(t, p, &o, 1, nil)
		} else if none(t, p); Of(&got) != &o {
			t.Fatalf("got %+v", got)
		}
		recv(t, p, x, b, &o)
		completes(t, p, &o, 2, nil)
		recv(t, p, x, b, &o)
		completes(t, p, &o, 0, io.EOF)
	})
}
