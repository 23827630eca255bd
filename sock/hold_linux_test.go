package sock_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// A held socket outlives its Close until the last Release, and no longer.
func TestHold(t *testing.T) {
	on(t, func(t *testing.T, k kind) {
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
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Hold(); err == nil {
			t.Error("held after Close")
		}
		for i, held := range []sock.Held{first, second} {
			buf := make([]byte, 8)
			if n, err := held.Send([]byte("ping")); n != 4 || err != nil {
				t.Fatalf("%d: send: %d, %v", i, n, err)
			}
			settle(t, b, unix.POLLIN)
			if n, err := b.Recv(buf); n != 4 || err != nil {
				t.Fatalf("%d: recv: %d, %v", i, n, err)
			}
			if n, err := b.SendV([][]byte{[]byte("po"), []byte("ng")}); n != 4 || err != nil {
				t.Fatalf("%d: sendv: %d, %v", i, n, err)
			}
			settleHandle(t, h, unix.POLLIN)
			if n, err := held.Recv(buf); err != nil || !bytes.Equal(buf[:n], []byte("pong")) {
				t.Fatalf("%d: recv: %q, %v", i, buf[:n], err)
			}
			if a.Handle() != h {
				t.Fatalf("%d: it is closed though it is held", i)
			}
			held.Release()
		}
		if a.Handle() != none {
			t.Error("it is open though nobody holds it")
		}
	}, func(k kind) bool { return true })
}

// What is received through a hold vouches as what is received without (X5).
func TestHoldVouches(t *testing.T) {
	a, b := unixPair(t, false)
	held, err := a.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	x := fdstate.Of(a.SyscallConn())
	x.Notified(x.Notify(false, false))
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

func TestAllocsOfHolds(t *testing.T) {
	a, b := unixPair(t, false)
	buf := make([]byte, 8)
	allocatesNothing(t, "Hold", func() {
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
