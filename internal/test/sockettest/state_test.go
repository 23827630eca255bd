//go:build unix

package sockettest

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/await"
)

// eventually waits until all of some conditions hold, and checks that none of others does.
func eventually(t *testing.T, fd int, want, not State) {
	t.Helper()
	var got State
	await.Until(t, fmt.Sprintf("conditions %#b", want), func() bool {
		got = Now(fd)
		return got&want == want
	})
	if got&not != 0 {
		t.Fatalf("%#b; want %#b without %#b", got, want, not)
	}
}

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := UnixPair(unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return fds[0], fds[1]
}

// tcp returns a connection.
func tcp(t *testing.T) (a, b int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil && err != unix.EINPROGRESS {
			t.Fatal(err)
		}
	}
	l, err := New(unix.AF_INET, unix.SOCK_STREAM)
	must(err)
	defer unix.Close(l)
	must(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(unix.Listen(l, 1))
	at, err := unix.Getsockname(l)
	must(err)
	a, err = New(unix.AF_INET, unix.SOCK_STREAM)
	must(err)
	t.Cleanup(func() { unix.Close(a) })
	must(BindTo(uintptr(a)))
	must(unix.Bind(a, &unix.SockaddrInet4{Addr: Source()}))
	must(unix.Connect(a, at))
	eventually(t, l, In, Err|PeerClosed|Dead)
	b, err = Accept(l)
	must(err)
	eventually(t, a, Out, In|Err|PeerClosed|Dead)
	return a, b
}

func write(t *testing.T, fd int) {
	t.Helper()
	if n, err := unix.Write(fd, []byte("x")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
}

func TestNow(t *testing.T) {
	for name, make := range map[string]func(t *testing.T) (a, b int){"unix": pair, "tcp": tcp} {
		t.Run(name, func(t *testing.T) {
			a, b := make(t)
			eventually(t, a, Out, In|Urgent|Err|PeerClosed|Dead)
			write(t, b)
			eventually(t, a, In|Out, Urgent|Err|PeerClosed|Dead)
			if err := unix.Shutdown(b, unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
			var buf [8]byte
			if n, err := unix.Read(a, buf[:]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			eventually(t, a, In|Out|PeerClosed, Urgent|Err|Dead)
			unix.Close(b)
		})
	}
	t.Run("urgent", func(t *testing.T) {
		a, b := tcp(t)
		if err := SendUrgent(uintptr(b), 1); err != nil {
			t.Fatal(err)
		}
		eventually(t, a, Urgent, Err|PeerClosed|Dead)
		unix.Close(b)
	})
	t.Run("reset", func(t *testing.T) {
		a, b := tcp(t)
		if err := unix.SetsockoptLinger(b, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			t.Fatal(err)
		}
		unix.Close(b)
		eventually(t, a, Err|Dead, 0)
		if Now(a)&Err == 0 {
			t.Fatal("the first look took the error away")
		}
		var buf [1]byte
		if _, err := unix.Read(a, buf[:]); err != unix.ECONNRESET {
			t.Fatal(err)
		}
	})
	t.Run("refused datagram", func(t *testing.T) {
		a, err := New(unix.AF_INET, unix.SOCK_DGRAM)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(a)
		b, err := New(unix.AF_INET, unix.SOCK_DGRAM)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Bind(b, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
		at, err := unix.Getsockname(b)
		if err == nil {
			err = unix.Connect(a, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(b)
		if err := SendEmpty(uintptr(a)); err != nil {
			t.Fatal(err)
		}
		eventually(t, a, Err, PeerClosed|Dead)
	})
}

func TestDescriptors(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(b)
	dup, err := Dup(uintptr(a), 50)
	if err != nil || dup < 50 {
		t.Fatal(dup, err)
	}
	defer unix.Close(dup)
	r, w, err := Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(r)
	defer unix.Close(w)
	if err := Become(r, uintptr(b)); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{a, b, dup, r, w} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: %#x, %v; want FD_CLOEXEC", fd, flags, err)
		}
	}
	write(t, r)
	eventually(t, dup, In|Out, Err|PeerClosed|Dead)
}
