//go:build unix

package unixsock

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

func TestPending(t *testing.T) {
	pair := func(typ int) (a, b int) {
		t.Helper()
		p, err := unix.Socketpair(unix.AF_UNIX, typ, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(p[0]); unix.Close(p[1]) })
		return p[0], p[1]
	}
	expect := func(what string, fd int, want backend.Mask, wantSure bool) {
		t.Helper()
		for range 2 { // a peek consumes nothing
			if m, sure := Pending(fd); m != want || sure != wantSure {
				t.Errorf("%s: %x, %v; want %x, %v", what, m, sure, want, wantSure)
			}
		}
	}

	a, b := pair(unix.SOCK_STREAM)
	expect("idle stream", a, 0, true)
	unix.Write(b, []byte("xy"))
	expect("data", a, backend.In, true)
	unix.Shutdown(b, unix.SHUT_WR)
	expect("data before the end", a, backend.In, true)
	unix.Read(a, make([]byte, 8))
	expect("end", a, backend.In|backend.PeerClosed, true)

	a, b = pair(unix.SOCK_DGRAM)
	expect("idle datagram", a, 0, true)
	unix.Sendto(b, nil, 0, nil)
	expect("empty datagram", a, backend.In, true)

	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	expect("never started", s, backend.Dead, true)
	if err := unix.Listen(s, 1); err != nil {
		t.Fatal(err)
	}
	expect("listener", s, 0, false)
	expect("no descriptor", 1<<30, 0, false)
}

func TestWithoutData(t *testing.T) {
	const gone = backend.In | backend.Err | backend.Dead | backend.PeerClosed
	for _, c := range []struct {
		err  error
		kind backend.Kind
		want backend.Mask
		sure bool
	}{
		{unix.ECONNREFUSED, backend.Stream, gone, true},
		{unix.ECONNRESET, backend.Stream, gone, true},
		{unix.ETIMEDOUT, backend.Stream, gone, true},
		{unix.ENOTCONN, backend.Stream, backend.Dead, true},
		{nil, backend.Stream, backend.In | backend.PeerClosed, true},
		{unix.ECONNREFUSED, backend.Datagram, backend.Err, true},
		{nil, backend.Datagram, backend.In, true},
		{unix.EOPNOTSUPP, backend.Datagram, 0, false},
		{unix.ENOTCONN, backend.Listener, 0, false},
		{unix.EINVAL, backend.Listener, 0, false},
	} {
		if m, sure := withoutData(c.err, c.kind); m != c.want || sure != c.sure {
			t.Errorf("%v of kind %d: %x, %v; want %x, %v", c.err, c.kind, m, sure, c.want, c.sure)
		}
	}
}

// One Reset clears any number of Wakes.
func TestWaker(t *testing.T) {
	b, err := NewWaker()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	readable := func() bool { return PollNow([]unix.PollFd{b.Entry()}) == 1 }
	for range 3 {
		if readable() {
			t.Fatal("readable before Wake")
		}
		for range 200 {
			b.Wake()
		}
		if !readable() {
			t.Fatal("not readable after Wake")
		}
		b.Reset()
	}
}

// peeked returns each error whatever the number of bytes, except an error about the sender's address.
func TestPeeked(t *testing.T) {
	for _, n := range []int{-1, 0} {
		for _, err := range []error{unix.ECONNRESET, unix.ECONNREFUSED, unix.ENOTCONN, unix.ETIMEDOUT} {
			if got := peeked(n, err); got != err {
				t.Errorf("%d, %v: %v", n, err, got)
			}
		}
	}
	if err := peeked(0, nil); err != nil {
		t.Error(err)
	}
	if err := peeked(0, unix.EAFNOSUPPORT); err != nil {
		t.Error(err)
	}
}
