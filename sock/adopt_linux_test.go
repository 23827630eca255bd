package sock_test

import (
	"io"
	"math"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/sock"
)

// rawPair returns a pair of descriptors that were not created by package sock.
func rawPair(t *testing.T, typ int) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

func TestAdopt(t *testing.T) {
	handles.NoneLeft(t, "")
	for _, c := range []struct {
		name string
		typ  int
		mode sock.Mode
		want error // for a blocking handle
	}{
		{"non-blocking", unix.SOCK_STREAM | unix.SOCK_NONBLOCK, sock.RefuseBlocking, nil},
		{"non-blocking anyway", unix.SOCK_STREAM | unix.SOCK_NONBLOCK, sock.MakeNonblocking, nil},
		{"blocking", unix.SOCK_STREAM, sock.RefuseBlocking, sock.ErrBlocking},
		{"made non-blocking", unix.SOCK_STREAM, sock.MakeNonblocking, nil},
		{"blocking datagrams", unix.SOCK_DGRAM, sock.RefuseBlocking, sock.ErrBlocking},
		{"datagrams", unix.SOCK_DGRAM, sock.MakeNonblocking, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, y := rawPair(t, c.typ)
			defer unix.Close(y)
			h := uintptr(x)
			s, err := sock.Adopt(h, c.mode)
			if c.want != nil {
				if wantError(t, err, "adopt", h, c.want); s != nil || !blocking(t, h) {
					t.Errorf("%v; mode changed: %v", s, !blocking(t, h))
				}
				if err := unix.Close(x); err != nil {
					t.Errorf("the caller cannot use the handle: %v", err)
				}
				return
			}
			if closeLater(t, s, err); s.Handle() != h || blocking(t, h) {
				t.Errorf("handle %d, not %d; it blocks: %v", s.Handle(), h, blocking(t, h))
			}
			if _, err := unix.Write(y, []byte("hello")); err != nil {
				t.Fatal(err)
			}
			wantReceive(t, s, 8, "hello")
			if s.Close(); unix.Close(x) != unix.EBADF {
				t.Error("the Socket did not own the handle")
			}
		})
	}
}

// Adopt recognizes streams, for which Recv returns io.EOF, TCP, for which a short receive drains, and listeners.
func TestAdoptKinds(t *testing.T) {
	dup := func(s *sock.Socket) *sock.Socket {
		h, err := unix.FcntlInt(s.Handle(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		s, err = sock.Adopt(uintptr(h), sock.RefuseBlocking)
		return closeLater(t, s, err)
	}
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		a, b = dup(a), dup(b)
		send(t, a, "data")
		waitPoll(t, b, in)
		wantReceive(t, b, 8, "data")
		if short := fdstate.Of(b.SyscallConn()).Drained(fdstate.Recv); short != k.tcp {
			t.Errorf("a short receive drains: %v", short)
		}
		if k.stream {
			a.Close()
			waitPoll(t, b, ended)
			if _, err := b.Recv(make([]byte, 8)); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		} else if send(t, a, ""); receive(t, b, 8) != "" {
			t.Error("got an empty datagram")
		}
	})
	l := dup(listen(t, sock.Loopback))
	c := connect(t, l.LocalAddr())
	s := accept(t, l)
	send(t, c, "data")
	if receive(t, s, 8); !fdstate.Of(s.SyscallConn()).Drained(fdstate.Recv) {
		t.Error("the accepted connection is not recognized as TCP")
	}
}

func TestAdoptFails(t *testing.T) {
	handles.NoneLeft(t, "")
	file := fileOf(t, "data")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	gone, x := rawPair(t, unix.SOCK_STREAM)
	unix.Close(gone)
	unix.Close(x)
	for _, c := range []struct {
		name   string
		handle uintptr
		cause  error
	}{
		{"closed", uintptr(gone), unix.EBADF},
		{"negative", ^uintptr(0), unix.EBADF},
		{"more negative", ^uintptr(4), unix.EBADF},
		{"too large", uintptr(math.MaxInt32) + 1, unix.EBADF},
		{"a pipe", r.Fd(), unix.ENOTSOCK},
		{"a file", file.Fd(), unix.ENOTSOCK},
	} {
		for _, m := range []sock.Mode{sock.RefuseBlocking, sock.MakeNonblocking} {
			s, err := sock.Adopt(c.handle, m)
			if wantError(t, err, "adopt", c.handle, c.cause); s != nil {
				t.Errorf("%s: got a Socket", c.name)
			}
		}
	}
	// The system ignores the upper half of a descriptor number.
	x, y := rawPair(t, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	defer unix.Close(x)
	defer unix.Close(y)
	if strconv.IntSize == 64 {
		high := uint64(1) << 32
		s, err := sock.Adopt(uintptr(high)|uintptr(x), sock.RefuseBlocking)
		if wantError(t, err, "adopt", uintptr(high)|uintptr(x), unix.EBADF); s != nil {
			t.Error("got a Socket")
		}
	}
	w.Write([]byte("x"))
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil { // the descriptor is still open
		t.Error(n, err)
	}
}
