package afd

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/winsock"
	testawait "github.com/socknotify/socknotify/internal/test/await"
)

var (
	ws2      = windows.NewLazySystemDLL("ws2_32.dll")
	wsAccept = ws2.NewProc("accept")
	wsSend   = ws2.NewProc("send")
	wsRecv   = ws2.NewProc("recv")
	wsIoctl  = ws2.NewProc("ioctlsocket")
)

func open(t testing.TB) *Poller {
	t.Helper()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	p := k.(*Poller)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if p.out != 0 {
			t.Errorf("the kernel kept %d blocks", p.out)
		}
	})
	return p
}

type socket = windows.Handle

func newSocket(t testing.TB, typ int) socket {
	t.Helper()
	if err := winsock.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := windows.Socket(windows.AF_INET, typ, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { windows.Closesocket(s) })
	nonblocking(t, s)
	return s
}

func nonblocking(t testing.TB, s socket) {
	t.Helper()
	const fionbio = 0x8004667e
	on := uint32(1)
	if r, _, err := wsIoctl.Call(uintptr(s), fionbio, uintptr(unsafe.Pointer(&on))); int32(r) != 0 {
		t.Fatal(err)
	}
}

var loopback = [4]byte{127, 0, 0, 1}

func bound(t testing.TB, typ int) (s socket, addr windows.SockaddrInet4) {
	t.Helper()
	s = newSocket(t, typ)
	if err := windows.Bind(s, &windows.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	sa, err := windows.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, *sa.(*windows.SockaddrInet4)
}

func listener(t testing.TB) (s socket, addr windows.SockaddrInet4) {
	t.Helper()
	s, addr = bound(t, windows.SOCK_STREAM)
	if err := windows.Listen(s, 16); err != nil {
		t.Fatal(err)
	}
	return s, addr
}

func connect(t testing.TB, s socket, addr windows.SockaddrInet4) {
	t.Helper()
	if err := windows.Connect(s, &addr); err != nil && err != windows.WSAEWOULDBLOCK {
		t.Fatal(err)
	}
}

func acceptFrom(t testing.TB, l socket) socket {
	t.Helper()
	var s uintptr
	eventually(t, "a connection to accept", func() bool {
		s, _, _ = wsAccept.Call(uintptr(l), 0, 0)
		return socket(s) != windows.InvalidHandle
	})
	t.Cleanup(func() { windows.Closesocket(socket(s)) })
	nonblocking(t, socket(s))
	return socket(s)
}

// pair opens a TCP connection.
func pair(t testing.TB) (a, b socket) {
	t.Helper()
	l, addr := listener(t)
	a = newSocket(t, windows.SOCK_STREAM)
	connect(t, a, addr)
	b = acceptFrom(t, l)
	windows.Closesocket(l)
	p := open(t)
	apply(t, p, backend.Add, a, 1, backend.Out)
	await(t, p) // until it is connected on this side too
	apply(t, p, backend.Delete, a, 1, 0)
	return a, b
}

func write(t testing.TB, s socket) { transmit(t, s, 0) }

func transmit(t testing.TB, s socket, flags uintptr) {
	t.Helper()
	x := [1]byte{'x'}
	if r, _, err := wsSend.Call(uintptr(s), uintptr(unsafe.Pointer(&x)), 1, flags); int32(r) != 1 {
		t.Fatal(err)
	}
}

// read returns the number of bytes received, or the error.
func read(s socket) (int, error) {
	var b [64]byte
	r, _, err := wsRecv.Call(uintptr(s), uintptr(unsafe.Pointer(&b)), uintptr(len(b)), 0)
	if int32(r) < 0 {
		return 0, err
	}
	return int(r), nil
}

// reset closes a connection so that the peer sees it aborted.
func reset(t testing.TB, s socket) {
	t.Helper()
	if err := windows.SetsockoptLinger(s, windows.SOL_SOCKET, windows.SO_LINGER, &windows.Linger{Onoff: 1}); err != nil {
		t.Fatal(err)
	}
	windows.Closesocket(s)
}

// apply makes one change that must succeed.
func apply(t testing.TB, p *Poller, action backend.Action, s socket, token uint64, interest backend.Mask) {
	t.Helper()
	if status, err := change(p, action, s, token, interest); status != backend.Done {
		t.Fatalf("action %d: status %d, %v", action, status, err)
	}
}

func change(p *Poller, action backend.Action, s socket, token uint64, interest backend.Mask) (backend.Status, error) {
	c := [1]backend.Change{{Handle: uintptr(s), Token: token, Interest: interest, Action: action}}
	p.Poll(c[:], nil)
	return c[0].Status, c[0].Err
}

const in = backend.In | backend.Urgent | backend.PeerClosed

func harvest(p *Poller) []backend.Ready {
	ready := make([]backend.Ready, 8)
	return ready[:p.Poll(nil, ready)]
}

// await returns the next report.
func await(t testing.TB, p *Poller) backend.Ready {
	t.Helper()
	var ready [1]backend.Ready
	eventually(t, "a report", func() bool { return p.Poll(nil, ready[:]) == 1 })
	return ready[0]
}

// expect waits for a report of a token with a mask.
func expect(t testing.TB, p *Poller, token uint64, want backend.Mask) {
	t.Helper()
	if r := await(t, p); r.Token != token || r.Mask != want {
		t.Fatalf("report of %d with mask %#x; want %d with %#x", r.Token, r.Mask, token, want)
	}
}

// none proves that there is no report: one of a socket made for it comes first.
func none(t testing.TB, p *Poller) {
	t.Helper()
	s := newSocket(t, windows.SOCK_DGRAM)
	const probe = 1 << 40
	apply(t, p, backend.Add, s, probe, backend.Out)
	expect(t, p, probe, backend.Out)
	apply(t, p, backend.Delete, s, probe, 0)
	windows.Closesocket(s)
	if r := harvest(p); len(r) != 0 {
		t.Fatalf("reports %+v; want none", r)
	}
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	testawait.Until(t, what, done)
}

// park runs Park and fails if it does not return.
func park(t testing.TB, p *Poller, until time.Time, poll func() bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.Park(until, poll) }()
	defer func() {
		if t.Failed() {
			p.Wake()
		}
	}()
	if err := testawait.Receive(t, "Park returns", done); err != nil {
		t.Fatal(err)
	}
}

func sleepOn() bool { return false }

// reuse closes a socket and opens one of the given type with the same number.
func reuse(t testing.TB, s socket, typ int) {
	t.Helper()
	windows.Closesocket(s)
	for range 4096 {
		if newSocket(t, typ) == s {
			return
		}
	}
	t.Skip("the system does not give the number to another socket")
}

// duplicate returns another handle of a socket.
func duplicate(t testing.TB, s socket) (dup socket) {
	t.Helper()
	var info windows.WSAProtocolInfo
	err := windows.WSADuplicateSocket(s, windows.GetCurrentProcessId(), &info)
	if err == nil {
		dup, err = windows.WSASocket(-1, -1, -1, &info, 0, windows.WSA_FLAG_OVERLAPPED)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dup
}

var handleCount = kernel32.NewProc("GetProcessHandleCount")

func handles(t testing.TB) uint32 {
	t.Helper()
	var n uint32
	if r, _, err := handleCount.Call(uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&n))); r == 0 {
		t.Fatal(err)
	}
	return n
}
