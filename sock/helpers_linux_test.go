package sock_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/handles"
	"github.com/socknotify/socknotify/internal/leaks"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) {
	// Go's poller opens descriptors of its own for the first socket that it watches.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
	before := handles.List()
	leaks.Main(m, goleak.Cleanup(func(code int) {
		if after := handles.List(); code == 0 && !slices.Equal(before, after) {
			fmt.Fprintf(os.Stderr, "descriptors before: %v\nand after: %v\n", before, after)
			code = 1
		}
		os.Exit(code)
	}))
}

// exhaust lets no descriptor be opened, but for some spare ones, until restore is called.
func exhaust(t *testing.T, spare int) (restore func()) {
	t.Helper()
	var free []int
	for range spare + 1 {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		free = append(free, fd)
	}
	for _, fd := range free {
		unix.Close(fd)
	}
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	now := unix.Rlimit{Cur: uint64(free[spare]), Max: was.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &now, nil); err != nil {
		t.Fatal(err)
	}
	restore = func() { unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil) }
	t.Cleanup(restore)
	return restore
}

// soon is how long a test waits for what must come before it gives up.
const soon = time.Minute

// settle waits until poll(2) reports one of some conditions of a socket.
func settle(t testing.TB, s *sock.Socket, events int16) {
	t.Helper()
	settleHandle(t, s.Handle(), events)
}

func settleHandle(t testing.TB, h uintptr, events int16) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(h), Events: events}}
	for end := time.Now().Add(soon); fds[0].Revents&events == 0; {
		if _, err := unix.Poll(fds, 100); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("poll(2) never reported %#x", events)
		}
	}
}

const (
	in     = unix.POLLIN
	out    = unix.POLLOUT
	ended  = unix.POLLRDHUP
	broken = unix.POLLERR
)

// keep closes a socket at the end, if the test has not.
func keep(t testing.TB, s *sock.Socket, err error) *sock.Socket {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func listen(t testing.TB, on netip.AddrPort) *sock.Socket {
	t.Helper()
	s, err := sock.ListenTCP(on, sock.ListenOptions{})
	return keep(t, s, err)
}

// connect starts to connect a new socket.
func connect(t testing.TB, to netip.AddrPort) *sock.Socket {
	t.Helper()
	s, err := sock.New(sock.NetworkOf(to, sock.TCP4, sock.TCP6))
	keep(t, s, err)
	if err := s.Connect(to); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	return s
}

func accept(t testing.TB, l *sock.Socket) *sock.Socket {
	t.Helper()
	settle(t, l, in)
	s, err := l.Accept()
	return keep(t, s, err)
}

func bound(t testing.TB, n sock.Network, to netip.AddrPort) *sock.Socket {
	t.Helper()
	s, err := sock.New(n)
	keep(t, s, err)
	if err := s.Bind(to); err != nil {
		t.Fatal(err)
	}
	return s
}

func needV6(t testing.TB) {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback6, sock.ListenOptions{})
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("no ::1 here")
	}
	keep(t, l, err).Close()
}

func send(t testing.TB, s *sock.Socket, data string) {
	t.Helper()
	if n, err := s.Send([]byte(data)); n != len(data) || err != nil {
		t.Fatalf("Send = %d, %v", n, err)
	}
}

// receive waits for data and receives it into a buffer of a size.
func receive(t testing.TB, s *sock.Socket, size int) string {
	t.Helper()
	settle(t, s, in)
	b := make([]byte, size)
	n, err := s.Recv(b)
	if err != nil {
		t.Fatalf("Recv = %d, %v", n, err)
	}
	return string(b[:n])
}

// arrived waits until so many bytes can be received.
func arrived(t testing.TB, s *sock.Socket, n int) {
	t.Helper()
	for end := time.Now().Add(soon); ; {
		settle(t, s, in)
		if got, err := unix.IoctlGetInt(int(s.Handle()), unix.TIOCINQ); err != nil || got >= n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("it never arrived")
		}
	}
}

// option reads an option of a socket.
func option(t testing.TB, s *sock.Socket, level, name int) int {
	t.Helper()
	v, err := unix.GetsockoptInt(int(s.Handle()), level, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// failed checks that an error is an *Error of an operation, on a socket, for a cause.
func failed(t testing.TB, err error, op string, handle uintptr, cause error) {
	t.Helper()
	var e *sock.Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("%v (%T) is no *sock.Error", err, err)
	case e.Op != op || e.Handle != handle || cause != nil && !errors.Is(err, cause):
		t.Errorf("%v; want %s on socket %d: %v", err, op, int(handle), cause)
	}
}

// none is the handle of no socket.
const none = ^uintptr(0)

// blocking reports whether calls on a handle block.
func blocking(t testing.TB, h uintptr) bool {
	t.Helper()
	flags, err := unix.FcntlInt(h, unix.F_GETFL, 0)
	if err != nil {
		t.Fatal("descriptor " + strconv.Itoa(int(h)) + ": " + err.Error())
	}
	return flags&unix.O_NONBLOCK == 0
}

// abstract is a Unix address of this process's that needs no file.
func abstract(name string) string { return fmt.Sprintf("@socknotify-%d-%s", os.Getpid(), name) }
