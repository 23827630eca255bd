package overlapped

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"weak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// In the tests below a harvester has taken a report from the kernel, and others act on the socket's
// operations before it does.

// completes waits for a completion and checks it.
func completes[K comparable](t *testing.T, p *socknotify.Port[K], o *Op[K], bytes int, want error) {
	t.Helper()
	nt := next(t, p)
	if Of(&nt) != o {
		t.Fatalf("%+v; want the completion of %p", nt, o)
	}
	if n, err := o.Result(); n != bytes || !errors.Is(err, want) {
		t.Fatalf("completed with %d, %v; want %d, %v", n, err, bytes, want)
	}
}

func recv(t *testing.T, p *socknotify.Port[string], s *sock.Socket, b []byte, o *Op[string]) {
	t.Helper()
	must(t, Recv(p, s, "k", b, o))
}

func TestReportHeldAcrossStart(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var first, second Op[string]
		var b [2]byte
		recv(t, p, x, b[:1], &first)
		none(t, p)
		send(t, y)
		send(t, y)
		h.During(func() { recv(t, p, x, b[1:], &second) })
		completes(t, p, &first, 1, nil)
		completes(t, p, &second, 1, nil)
		none(t, p)
	})
}

// The report concerns no operation, but the next receive must not rely on what was known before it.
func TestReportHeldAcrossCancel(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var o Op[string]
		b := make([]byte, 1)
		recv(t, p, x, b, &o)
		none(t, p)
		send(t, y)
		h.During(func() {
			if err := Cancel(p, &o); err != nil {
				t.Error(err)
			}
		})
		completes(t, p, &o, 0, ErrCanceled)
		none(t, p)
		recv(t, p, x, b, &o)
		completes(t, p, &o, 1, nil)
	})
}

func TestReportHeldAcrossSockClose(t *testing.T) {
	nextHasNumber(t)
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var o, other Op[string]
		b := make([]byte, 2)
		recv(t, p, x, b[:1], &o)
		none(t, p)
		send(t, y)
		var z *sock.Socket
		h.During(func() {
			number := x.Handle()
			x.Close()
			a, peer := newPair(t)
			if z = peer; a.Handle() != number {
				t.Fatalf("number %d was not reused: %d", number, a.Handle())
			}
			recv(t, p, a, b[1:], &other)
		})
		completes(t, p, &o, 0, net.ErrClosed)
		none(t, p)
		send(t, z)
		completes(t, p, &other, 1, nil)
	})
}

// What has waited for a connect that is canceled goes on, though the report said nothing of it.
func TestReportHeldAcrossCanceledConnect(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		l := porttest.Listener(t)
		c, err := sock.New(sock.TCP4)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var connect, o Op[string]
		must(t, Connect(p, c, "k", l.LocalAddr(), &connect))
		recv(t, p, c, make([]byte, 1), &o)
		var s *sock.Socket
		eventually(t, "the connection", func() bool { s, err = l.Accept(); return err == nil })
		defer s.Close()
		send(t, s)
		h.During(func() {
			if err := Cancel(p, &connect); err != nil {
				t.Error(err)
			}
		})
		completes(t, p, &connect, 0, ErrCanceled)
		completes(t, p, &o, 1, nil)
	})
}

// What the kernel refuses harms no operation: it is not started, or goes on waiting.
func TestRefusedOperations(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var o, out Op[string]
		b := make([]byte, 1)
		h.Refuse = refuseAll
		if err := Recv(p, x, "k", b, &o); !errors.Is(err, refuseAll(nil)) {
			t.Fatalf("start: %v", err)
		}
		none(t, p)
		h.Refuse = nil
		recv(t, p, x, b, &o)
		none(t, p)
		full := make([]byte, 64<<10)
		for {
			if _, err := x.Send(full); err != nil {
				break
			}
		}
		h.Refuse = refuseAll
		must(t, Send(p, x, "k", b, &out))
		none(t, p)
		h.Refuse = nil
		drain(t, y)
		completes(t, p, &out, 1, nil)
		send(t, y)
		completes(t, p, &o, 1, nil)
	})
}

// A port whose reads are under way can be collected, and the program can use its buffers and Ops.
func TestFilesKeepNoPort(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ops [50]Op[string]
	var bufs [50][1 << 10]byte
	var dropped weak.Pointer[socknotify.Port[string]]
	func() {
		p, err := socknotify.New[string]()
		if err != nil {
			t.Fatal(err)
		}
		dropped = weak.Make(p)
		for i := range ops {
			must(t, ReadAt(p, f, "k", bufs[i][:], 0, &ops[i]))
		}
	}()
	eventually(t, "the port is collected", func() bool { runtime.GC(); return dropped.Value() == nil })
	p, err := socknotify.New[string]()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range ops {
		eventually(t, "the operation is over", func() bool {
			runtime.GC()
			return ReadAt(p, f, "k", bufs[i][:], 0, &ops[i]) == nil
		})
	}
	for range ops {
		if _, err := result(t, p); err != io.EOF {
			t.Fatal(err)
		}
	}
}

// As long as Close has not given an operation back, no other port takes it (O2).
func TestStartMeetsClose(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		q, err := socknotify.New[string]()
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		x, _ := newPair(t)
		y, peer := newPair(t)
		var o Op[string]
		b := make([]byte, 1)
		recv(t, p, x, b, &o)
		none(t, p)
		c := port.Of(p).Core
		if !c.Enter() { // a call that Close waits for
			t.Fatal("the port is closed")
		}
		closed := make(chan error)
		go func() { closed <- p.Close() }()
		eventually(t, "the port is being closed", c.Closed.Load)
		if err := Recv(q, y, "k", b, &o); !errors.Is(err, socknotify.ErrInvalid) {
			t.Errorf("started on another port: %v", err)
		}
		c.Leave()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		recv(t, q, y, b, &o)
		send(t, peer)
		completes(t, q, &o, 1, nil)
	})
}
