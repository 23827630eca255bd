package afd

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/backend"
)

// receiving makes the kernel receive in this test, also where it leaves sockets on a port.
func receiving(t *testing.T) {
	t.Helper()
	was := receives
	receives = func() bool { return true }
	t.Cleanup(func() { receives = was })
}

// startReceive starts a receive from a watched socket.
func startReceive(t *testing.T, p *Poller, s socket, r *backend.Receive) {
	t.Helper()
	if !p.Receive(uintptr(s), r) {
		t.Fatal("not started")
	}
}

// received returns one end of a connection, which a new Poller watches and receives from by the kernel, and the other end.
func received(t *testing.T) (p *Poller, a, b socket) {
	t.Helper()
	receiving(t)
	p = open(t)
	a, b = pair(t)
	apply(t, p, backend.Add, a, 1, in)
	return p, a, b
}

func newReceive(size int) *backend.Receive {
	return &backend.Receive{Exchange: backend.Exchange{Buf: make([]byte, size)}}
}

// ends waits for the report of a receive, and checks its outcome.
func ends(t *testing.T, p *Poller, token uint64, r *backend.Receive, n int, err error) {
	t.Helper()
	expect(t, p, token, backend.In)
	if !r.Ended.Load() || r.N != n || r.Err != err || r.Void {
		t.Fatalf("ended %t with %d, %v, void %t; want %d, %v", r.Ended.Load(), r.N, r.Err, r.Void, n, err)
	}
	r.Ended.Store(false)
}

func TestReceive(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(2)
	for range 3 {
		startReceive(t, p, a, r)
		none(t, p)
		write(t, b)
		ends(t, p, 1, r, 1, nil)
		if r.Buf[0] != 'x' {
			t.Fatalf("received %q", r.Buf)
		}
		none(t, p)
	}
	write(t, b) // data that is there
	eventually(t, "the byte", func() bool { return p.PollOne(uintptr(a))&backend.In != 0 })
	startReceive(t, p, a, r)
	ends(t, p, 1, r, 1, nil)
	windows.Shutdown(b, windows.SHUT_WR)
	startReceive(t, p, a, r)
	ends(t, p, 1, r, 0, nil)
}

// A packet of an overlapped call that the program makes by itself is not taken for one of the port's.
func TestReceiveForeign(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(2)
	startReceive(t, p, a, r)
	write(t, b)
	ends(t, p, 1, r, 1, nil)
	var foreign struct {
		windows.Overlapped
		rest [4]uint64 // what follows it belongs to the program
	}
	for range 3 {
		foreign.rest = [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
		var pinner runtime.Pinner
		pinner.Pin(&foreign)
		text, n := []byte("x"), uint32(0)
		pinner.Pin(&text[0])
		if err := windows.WSASend(windows.Handle(a), &windows.WSABuf{Len: 1, Buf: &text[0]}, 1, &n, 0, &foreign.Overlapped, nil); err != nil {
			t.Fatal(err)
		}
		none(t, p)
		pinner.Unpin()
		if foreign.rest != [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)} {
			t.Fatal("what follows the program's OVERLAPPED was changed")
		}
	}
	startReceive(t, p, a, r)
	write(t, b)
	ends(t, p, 1, r, 1, nil)
}

func TestReceiveReset(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(2)
	startReceive(t, p, a, r)
	reset(t, b)
	ends(t, p, 1, r, 0, windows.WSAECONNRESET)
}

// A report may be lost to a Set that another call makes at the same time.
func TestReceiveReportedAgain(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(2)
	startReceive(t, p, a, r)
	write(t, b)
	expect(t, p, 1, backend.In)
	for token := uint64(2); token < 5; token++ {
		apply(t, p, backend.Set, a, token, 0)
		expect(t, p, token, backend.In)
	}
	park(t, p, time.Time{}, func() bool { return true }) // ends the wake of the latest Set
	park(t, p, time.Time{}, func() bool {
		go change(p, backend.Set, a, 5, 0)
		return false
	})
	ends(t, p, 5, r, 1, nil)
	apply(t, p, backend.Set, a, 6, 0)
	none(t, p)
}

func TestRevoke(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(2)
	for range 50 {
		startReceive(t, p, a, r)
		if !p.Revoke(r) || !r.Void || r.N != 0 || r.Err != nil {
			t.Fatalf("revoked: void %t, %d, %v", r.Void, r.N, r.Err)
		}
		r.Ended.Store(false)
	}
	write(t, b)
	startReceive(t, p, a, r)
	for !r.Ended.Load() {
		p.Poll(nil, make([]backend.Ready, 1))
	}
	if !p.Revoke(r) || r.Void || r.N != 1 {
		t.Fatalf("revoked after the end: void %t, %d, %v", r.Void, r.N, r.Err)
	}
}

// No byte is lost where a receive is revoked at the time that the byte arrives.
func TestRevokeRaces(t *testing.T) {
	p, a, b := received(t)
	r := newReceive(1)
	got := 0
	const rounds = 200
	for range rounds {
		startReceive(t, p, a, r)
		var sent sync.WaitGroup
		sent.Go(func() { write(t, b) })
		if !p.Revoke(r) {
			t.Fatal("not revoked")
		}
		sent.Wait()
		if r.Ended.Store(false); !r.Void {
			if r.N != 1 || r.Err != nil || r.Buf[0] != 'x' {
				t.Fatalf("%d, %v, %q", r.N, r.Err, r.Buf)
			}
			got++
		}
		r.Buf[0] = 0
	}
	for got < rounds {
		eventually(t, "the rest", func() bool { return p.PollOne(uintptr(a))&backend.In != 0 })
		n, err := read(a)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got > rounds {
		t.Errorf("%d bytes of %d", got, rounds)
	}
}

// A receive ends when the socket is closed, and the number can be watched again at once.
func TestReceiveClosed(t *testing.T) {
	p, a, _ := received(t)
	r := newReceive(2)
	startReceive(t, p, a, r)
	windows.Closesocket(a)
	if !p.Revoke(r) || r.N != 0 || !r.Void && r.Err == nil {
		t.Fatalf("void %t, %d, %v", r.Void, r.N, r.Err)
	}
	none(t, p)
}

// A socket that a Poller receives from by itself is still watched by others, which receive when it is ready.
func TestReceiveForOne(t *testing.T) {
	p, a, b := received(t)
	q := open(t)
	r := newReceive(2)
	startReceive(t, p, a, r)
	if !p.Revoke(r) {
		t.Fatal("not revoked")
	}
	r.Ended.Store(false)
	apply(t, p, backend.Delete, a, 0, 0)
	apply(t, q, backend.Add, a, 2, in)
	if q.Receive(uintptr(a), r) {
		t.Error("a socket belongs to two ports")
	}
	write(t, b)
	expect(t, q, 2, backend.In)
	d, _ := bound(t, windows.SOCK_DGRAM)
	apply(t, p, backend.Add, d, 1, in)
	if p.Receive(uintptr(d), r) {
		t.Error("the kernel receives a datagram")
	}
}

// Close gets all buffers back.
func TestCloseWhileReceiving(t *testing.T) {
	receiving(t)
	for range 10 {
		p := open(t) // checks at its end that the kernel has kept nothing
		for range 8 {
			a, _ := pair(t)
			apply(t, p, backend.Add, a, 1, in)
			startReceive(t, p, a, newReceive(8))
		}
	}
}
