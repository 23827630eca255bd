//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

import (
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
)

// Test files have no import "C", so they take its types from what has them.
type (
	cInt        = _Ctype_int
	cHandle     = _Ctype_uintptr_t
	cOverlapped = _Ctype_OVERLAPPED
	cEntry      = _Ctype_OVERLAPPED_ENTRY
)

func newTestPort(t *testing.T) *completionPort {
	t.Helper()
	var h cHandle
	if code := snGoNewPort(&h); code != 0 {
		t.Fatalf("error %d", code)
	}
	t.Cleanup(func() { snGoClosePort(h) })
	return find(uintptr(h))
}

// listenAt makes a listener with a port, by the descriptor fd unless it is negative.
func listenAt(t *testing.T, p *completionPort, fd int) (listener int, address string) {
	t.Helper()
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(l, 16)
	}
	if err == nil && fd >= 0 && fd != l {
		err = unix.Dup3(l, fd, unix.O_CLOEXEC)
		unix.Close(l)
		l = fd
	}
	if err != nil {
		t.Fatal(err)
	}
	is, err := unix.Getsockname(l)
	if err != nil {
		t.Fatal(err)
	}
	if code := associate(p.handle, l, 1); code != 0 {
		t.Fatalf("error %d", code)
	}
	at := is.(*unix.SockaddrInet4)
	return l, netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)).String()
}

// startAccept calls AcceptEx, and returns the socket for the connection.
func startAccept(t *testing.T, listener int, ov *cOverlapped) int {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s) })
	if code := snGoAccept(cInt(listener), cInt(s), unsafe.Pointer(new([64]byte)), 0, 32, 32, ov); code != 997 {
		t.Fatalf("error %d, want ERROR_IO_PENDING", code)
	}
	return s
}

// wantAccepted waits for the end of an AcceptEx, whose socket must have the connection of a
// client's port.
func wantAccepted(t *testing.T, p *completionPort, ov *cOverlapped, s, want int) {
	t.Helper()
	notes, entries := make([]notification, 4), make([]cEntry, 4)
	for ov.Internal == pending {
		n, err := p.Process(nil, notes, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		p.fill(&entries[0], notes[:n])
	}
	if peer, err := unix.Getpeername(s); err != nil || peer.(*unix.SockaddrInet4).Port != want {
		t.Fatalf("AcceptEx has the connection of %+v, %v, want that of port %d", peer, err, want)
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A connection is accepted, and before its completion is looked at another thread closes the listener and makes another
// one, which gets the same descriptor. The connection is that of the first AcceptEx, and the second gets its own.
func TestAcceptedOfClosedListener(t *testing.T) {
	p := newTestPort(t)
	notes := make([]notification, 4)
	entries := make([]cEntry, len(notes))
	var first, second cOverlapped
	l, address := listenAt(t, p, -1)
	connection := startAccept(t, l, &first)
	old := dial(t, address)
	n, err := p.Process(nil, notes, time.Minute)
	if err != nil || n != 1 || notes[0].Kind() != socknotify.KindCompleted {
		t.Fatalf("%d notifications, %v, %v", n, notes[0].Kind(), err)
	}
	if !snGoClosing(cInt(l)) {
		t.Fatal("not closed")
	}
	l, address = listenAt(t, p, l)
	defer snGoClosing(cInt(l))
	s := startAccept(t, l, &second)
	if n := p.fill(&entries[0], notes[:1]); n != 1 {
		t.Errorf("%d entries", n)
	}
	want := dial(t, address).LocalAddr().(*net.TCPAddr).Port
	wantAccepted(t, p, &second, s, want)
	if first.Internal != 0 {
		t.Errorf("the status of the first AcceptEx is %#x", first.Internal)
	}
	if _, err := unix.Write(connection, []byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := old.Read(make([]byte, 1)); n != 1 {
		t.Errorf("%d bytes read of the first connection, %v", n, err)
	}
}

// flying reports whether an OVERLAPPED is in flight for an operation.
func flying(ov *cOverlapped, o *operation) bool {
	inFlightMu.Lock()
	defer inFlightMu.Unlock()
	return inFlight[ov] == o && ov.Internal == pending
}

// A port is closed between the time that a thread dequeues an operation and ends it. The program uses the OVERLAPPED on
// another port, for which it stays in flight.
func TestEndAfterClose(t *testing.T) {
	closed, other := newTestPort(t), newTestPort(t)
	l, address := listenAt(t, other, -1)
	defer snGoClosing(cInt(l))
	obj := objectOf(l)
	var ov, unused cOverlapped
	dequeued := newOperation(closed, obj, &ov)
	newOperation(closed, obj, &unused) // of the closed port, and the same listener
	inFlightMu.Lock()
	delete(inFlight, &ov)
	inFlightMu.Unlock()
	s := startAccept(t, l, &ov)
	inFlightMu.Lock()
	o := inFlight[&ov]
	inFlightMu.Unlock()

	dequeued.settle(2, 0)
	if !flying(&ov, o) {
		t.Error("the result of the operation of the closed port has ended that of the other")
	}
	dequeued.end(1, 0)
	if !flying(&ov, o) {
		t.Error("the end of the operation of the closed port has ended that of the other")
	}
	dropOperations(closed)
	if !flying(&ov, o) {
		t.Error("closing the port has ended the operation of the other")
	}
	want := dial(t, address).LocalAddr().(*net.TCPAddr).Port
	wantAccepted(t, other, &ov, s, want)
}

// Operations end while a port is closed, and their memory is used again for operations of another port, which stay.
func TestDropOperationsWhileOthersStart(t *testing.T) {
	closed, other := newTestPort(t), newTestPort(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				dropOperations(closed)
				runtime.Gosched()
			}
		}
	})
	obj := new(object)
	var first, second cOverlapped
	for range 20000 {
		o := newOperation(closed, obj, &first)
		runtime.Gosched()
		o.end(0, 0)
		o = newOperation(other, obj, &second)
		runtime.Gosched()
		if !flying(&second, o) {
			t.Error("closing a port has dropped an operation of another")
			break
		}
		o.end(0, 0)
	}
	close(stop)
	wg.Wait()
}
