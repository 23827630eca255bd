package sock_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// The descriptor of a held socket is closed by the last Release after Close, not before.
func TestHeld(t *testing.T) {
	forEachKindIf(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		h := a.Handle()
		first, err := a.Hold()
		if err != nil || first.Socket() != a {
			t.Fatal(err)
		}
		second, err := a.Hold()
		if err != nil {
			t.Fatal(err)
		}
		must(t, a.Close())
		if _, err := a.Hold(); err == nil {
			t.Error("Hold after Close succeeded")
		}
		for i, held := range []sock.Held{first, second} {
			buf := make([]byte, 8)
			if n, err := held.Send([]byte("ping")); n != 4 || err != nil {
				t.Fatalf("%d: send: %d, %v", i, n, err)
			}
			waitPoll(t, b, unix.POLLIN)
			if n, err := b.Recv(buf); n != 4 || err != nil {
				t.Fatalf("%d: recv: %d, %v", i, n, err)
			}
			if n, err := b.SendV([][]byte{[]byte("po"), []byte("ng")}); n != 4 || err != nil {
				t.Fatalf("%d: sendv: %d, %v", i, n, err)
			}
			waitPollHandle(t, h, unix.POLLIN)
			if n, err := held.Recv(buf); err != nil || !bytes.Equal(buf[:n], []byte("pong")) {
				t.Fatalf("%d: recv: %q, %v", i, buf[:n], err)
			}
			if a.Handle() != h {
				t.Fatalf("%d: the held descriptor is closed", i)
			}
			held.Release()
		}
		if a.Handle() != none {
			t.Error("the descriptor is open after the last Release")
		}
	}, func(k kind) bool { return true })
}

// A receive through a Held records that the socket is drained, like a receive without (X5).
func TestHeldFastEnable(t *testing.T) {
	a, b := unixPair(t, false)
	held, err := a.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	x := fdstate.Of(a.SyscallConn())
	x.Confirm(x.Advance(false, false))
	if _, err := held.Recv(make([]byte, 1)); err != sock.ErrWouldBlock || !x.Drained(fdstate.Recv) {
		t.Errorf("%v, drained: %v", err, x.Drained(fdstate.Recv))
	}
	for err = nil; err == nil; {
		_, err = held.SendV([][]byte{make([]byte, 64<<10)})
	}
	if err != sock.ErrWouldBlock || !x.Drained(fdstate.Send) {
		t.Errorf("%v, drained: %v", err, x.Drained(fdstate.Send))
	}
	b.Close()
}

func TestHeldAllocs(t *testing.T) {
	a, b := unixPair(t, false)
	buf := make([]byte, 8)
	wantNoAllocs(t, "Hold", func() {
		held, err := a.Hold()
		if err != nil {
			t.Fatal(err)
		}
		held.Send(buf)
		b.Recv(buf)
		held.Recv(buf)
		held.Release()
	})
}
