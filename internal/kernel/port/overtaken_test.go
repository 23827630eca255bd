package port_test

import (
	"io"
	"testing"
	"unsafe"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/overlapped"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// In the tests below a harvester has taken a report from the kernel. Before it delivers that report, another harvester takes
// and delivers a later one. So a condition that holds now was in the report before the latest, and the latest does not
// mention it: a receive that is short of its buffer must not be taken for one that has drained the socket.

// overtake makes the end of a stream arrive, and be delivered, before a report that was taken earlier. got is the
// notification that was delivered.
func overtake(t *testing.T, p *Port[string], h *porttest.Hooked, x, y *sock.Socket, got *Notification[string]) {
	h.During(func() {
		if err := y.Shutdown(sock.ShutWrite); err != nil {
			t.Error(err)
		}
		if !port.Of(p).Core.OwnEdges {
			return // it is silent
		}
		porttest.WaitForEnd(t, p, x)
		w := port.Of(p).Begin()
		defer port.Of(p).End(w)
		var out [1]Notification[string]
		await.Until(t, "its delivery", func() bool {
			return port.Of(p).Dequeue(w, port.EntriesOf(unsafe.Pointer(&out[0]), 1), false) == 1
		})
		*got = out[0]
	})
}

func TestLevelOvertaken(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.TCPPair(t)
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.Persistent))
		porttest.Send(t, y)
		var got Notification[string]
		overtake(t, p, h, x, y, &got)
		porttest.Next(t, p)
		var b [64]byte
		if n, err := x.Recv(b[:]); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("T1: got %v; want the end of the stream", nt.Events)
		}
		porttest.Do(t, p, Enable(x, "x", EventIn, porttest.OneShot))
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("T4: got %v; want the end of the stream", nt.Events)
		}
	})
}

func TestOperationsOvertaken(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.TCPPair(t)
		var o overlapped.Op[string]
		b := make([]byte, 64)
		recv(t, p, x, b[:1], &o)
		porttest.None(t, p)
		if _, err := y.Send([]byte("xyz")); err != nil {
			t.Fatal(err)
		}
		var got Notification[string]
		overtake(t, p, h, x, y, &got)
		if !port.Of(p).Core.OwnEdges {
			completes(t, p, &o, 1, nil)
		} else if porttest.None(t, p); overlapped.Of(&got) != &o {
			t.Fatalf("got %+v", got)
		}
		recv(t, p, x, b, &o)
		completes(t, p, &o, 2, nil)
		recv(t, p, x, b, &o)
		completes(t, p, &o, 0, io.EOF)
	})
}

// recv starts to receive.
func recv(t *testing.T, p *Port[string], s *sock.Socket, b []byte, o *overlapped.Op[string]) {
	t.Helper()
	if err := overlapped.Recv(p, s, "k", b, o); err != nil {
		t.Fatal(err)
	}
}

// completes waits for a completion.
func completes(t *testing.T, p *Port[string], o *overlapped.Op[string], bytes int, want error) {
	t.Helper()
	nt := porttest.Next(t, p)
	if overlapped.Of(&nt) != o {
		t.Fatalf("%+v; want the completion of %p", nt, o)
	}
	if n, err := o.Result(); n != bytes || err != want {
		t.Fatalf("completed with %d, %v; want %d, %v", n, err, bytes, want)
	}
}
