package afd

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

const everything = in | backend.Out

// watched returns a Poller that watches one socket.
func watched(t *testing.T, s socket, interest backend.Mask) *Poller {
	t.Helper()
	p := open(t)
	apply(t, p, backend.Add, s, 1, interest)
	return p
}

// again polls a second time: the conditions persist.
func again(t *testing.T, p *Poller, s socket, interest, want backend.Mask) {
	t.Helper()
	apply(t, p, backend.Set, s, 2, interest)
	expect(t, p, 2, want)
	if got := p.PollOne(uintptr(s)); got&^backend.Out != want&^backend.Out {
		t.Errorf("PollOne = %#x; want %#x", got, want)
	}
}

func TestHalfClose(t *testing.T) {
	a, b := pair(t)
	p := watched(t, a, in)
	windows.Shutdown(b, windows.SHUT_WR)
	expect(t, p, 1, backend.In|backend.PeerClosed)
	if n, err := read(a); n != 0 || err != nil {
		t.Fatalf("read %d, %v; want the end", n, err)
	}
	again(t, p, a, in, backend.In|backend.PeerClosed)
	apply(t, p, backend.Set, a, 3, everything)
	expect(t, p, 3, backend.In|backend.PeerClosed|backend.Out)
	apply(t, p, backend.Set, a, 4, backend.PeerClosed)
	expect(t, p, 4, backend.PeerClosed)
	apply(t, p, backend.Set, a, 5, backend.In) // the end can be received, whether asked for or not
	expect(t, p, 5, backend.In|backend.PeerClosed)
	apply(t, p, backend.Set, a, 6, 0)
	none(t, p)
}

func TestEndAfterData(t *testing.T) {
	a, b := pair(t)
	p := watched(t, a, in)
	write(t, b)
	windows.Closesocket(b)
	m := await(t, p).Mask
	if m&backend.In == 0 || m&(backend.Err|backend.Dead) != 0 {
		t.Fatalf("mask %#x", m)
	}
	// Wine shows the end only after the data is read.
	read(a)
	again(t, p, a, in, backend.In|backend.PeerClosed)
}

func TestReset(t *testing.T) {
	for _, interest := range []backend.Mask{in, everything, backend.PeerClosed, 0} {
		a, b := pair(t)
		p := watched(t, a, interest&^backend.Out)
		reset(t, b)
		want := backend.Err | backend.Dead | backend.PeerClosed | interest&backend.In
		expect(t, p, 1, want)
		apply(t, p, backend.Set, a, 2, interest)
		if r := await(t, p); r.Mask&^backend.Out != want {
			t.Errorf("mask %#x; want %#x", r.Mask, want)
		}
		if m := p.PollOne(uintptr(a)); m&(backend.Err|backend.Dead) != backend.Err|backend.Dead {
			t.Errorf("PollOne = %#x", m)
		}
	}
}

func TestConnect(t *testing.T) {
	l, addr := listener(t)
	s := newSocket(t, windows.SOCK_STREAM)
	p := watched(t, s, everything)
	none(t, p) // not started
	connect(t, s, addr)
	expect(t, p, 1, backend.Out)
	acceptFrom(t, l)
	again(t, p, s, everything, backend.Out)
}

func TestConnectRefused(t *testing.T) {
	unheard, addr := bound(t, windows.SOCK_STREAM)
	for _, interest := range []backend.Mask{everything, backend.Out, in, 0} {
		s := newSocket(t, windows.SOCK_STREAM)
		p := watched(t, s, interest)
		connect(t, s, addr)
		expect(t, p, 1, backend.Err|backend.Dead)
		again(t, p, s, interest, backend.Err|backend.Dead)
	}
	windows.Closesocket(unheard)
}

func TestListener(t *testing.T) {
	l, addr := listener(t)
	p := watched(t, l, in)
	none(t, p)
	for range 3 {
		connect(t, newSocket(t, windows.SOCK_STREAM), addr)
		expect(t, p, 1, backend.In)
		again(t, p, l, in, backend.In)
		acceptFrom(t, l)
		apply(t, p, backend.Set, l, 1, in)
		none(t, p)
	}
}

func TestDatagrams(t *testing.T) {
	a, addr := bound(t, windows.SOCK_DGRAM)
	b := newSocket(t, windows.SOCK_DGRAM)
	p := watched(t, a, in)
	none(t, p)
	if err := windows.Sendto(b, []byte("x"), 0, &addr); err != nil {
		t.Fatal(err)
	}
	expect(t, p, 1, backend.In)
	again(t, p, a, everything, backend.In|backend.Out)
	read(a)
	apply(t, p, backend.Set, a, 3, in)
	none(t, p)
	if err := windows.Sendto(b, nil, 0, &addr); err != nil { // empty datagrams count
		t.Fatal(err)
	}
	expect(t, p, 3, backend.In)
}

// If a datagram is refused, the socket has an error on Wine, and something to receive on Windows. Neither ends the
// socket.
func TestDatagramRefused(t *testing.T) {
	gone, addr := bound(t, windows.SOCK_DGRAM)
	windows.Closesocket(gone)
	s := newSocket(t, windows.SOCK_DGRAM)
	connect(t, s, addr)
	p := watched(t, s, in)
	write(t, s)
	if m := await(t, p).Mask; m != backend.Err && m != backend.In {
		t.Errorf("mask %#x", m)
	}
}

func TestUrgent(t *testing.T) {
	a, b := pair(t)
	p := watched(t, a, in)
	const oob = 1
	transmit(t, b, oob)
	expect(t, p, 1, backend.Urgent)
}

func TestShutdownHere(t *testing.T) {
	a, _ := pair(t)
	p := watched(t, a, in)
	windows.Shutdown(a, windows.SHUT_WR)
	none(t, p)
}

// Sockets of package net belong to the runtime's own completion port.
func TestPackageNet(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := open(t)
	handle := func(c any) (s socket) {
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { s = socket(fd) })
		return s
	}
	apply(t, p, backend.Add, handle(l), 1, in)
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	expect(t, p, 1, backend.In)
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, p, backend.Add, handle(a), 2, in)
	for range 10 {
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		expect(t, p, 2, backend.In)
		if _, err := a.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		apply(t, p, backend.Set, handle(a), 2, in)
	}
	b.Close()
	expect(t, p, 2, backend.In|backend.PeerClosed)
}
