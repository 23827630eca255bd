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

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) {
	// Go's poller opens its descriptors when the first socket is registered.
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

// exhaust limits the number of descriptors that can still be opened to spare, until restore is called.
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
	must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &was))
	now := unix.Rlimit{Cur: uint64(free[spare]), Max: was.Max}
	must(t, unix.Prlimit(0, unix.RLIMIT_NOFILE, &now, nil))
	restore = func() { unix.Prlimit(0, unix.RLIMIT_NOFILE, &was, nil) }
	t.Cleanup(restore)
	return restore
}

// timeout is the time that a test waits for anything that must happen.
const timeout = time.Minute

// waitPoll waits until poll(2) reports one of the events for a socket.
func waitPoll(t testing.TB, s *sock.Socket, events int16) {
	t.Helper()
	waitPollHandle(t, s.Handle(), events)
}

func waitPollHandle(t testing.TB, h uintptr, events int16) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(h), Events: events}}
	for end := time.Now().Add(timeout); fds[0].Revents&events == 0; {
		if _, err := unix.Poll(fds, 100); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for poll(2) to report %#x", events)
		}
	}
}

const (
	in     = unix.POLLIN
	out    = unix.POLLOUT
	ended  = unix.POLLRDHUP
	broken = unix.POLLERR
)

// closeLater closes a socket at the end of the test.
func closeLater(t testing.TB, s *sock.Socket, err error) *sock.Socket {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newSocket(t testing.TB, n sock.Network) *sock.Socket {
	t.Helper()
	s, err := sock.New(n)
	return closeLater(t, s, err)
}

func listenUnix(t testing.TB, name string, backlog int) *sock.Socket {
	t.Helper()
	l, err := sock.ListenUnix(name, sock.ListenOptions{Backlog: backlog})
	return closeLater(t, l, err)
}

// netListen, netDial, attach and detach close what they return at the end of the test.
func netListen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func netDial(t testing.TB, to net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func attach(t testing.TB, s *sock.Socket) net.Conn {
	t.Helper()
	c, err := sock.Attach(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func detach(t testing.TB, c any, m sock.Mode) *sock.Socket {
	t.Helper()
	s, err := sock.Detach(c, m)
	return closeLater(t, s, err)
}

func sendTo(t testing.TB, s *sock.Socket, data string, to netip.AddrPort) {
	t.Helper()
	must(t, s.SendTo([]byte(data), to))
}

func listen(t testing.TB, on netip.AddrPort) *sock.Socket {
	t.Helper()
	s, err := sock.ListenTCP(on, sock.ListenOptions{})
	return closeLater(t, s, err)
}

// connect starts to connect a new socket.
func connect(t testing.TB, to netip.AddrPort) *sock.Socket {
	t.Helper()
	s := newSocket(t, sock.NetworkOf(to, sock.TCP4, sock.TCP6))
	if err := s.Connect(to); err != nil && err != sock.ErrWouldBlock {
		t.Fatal(err)
	}
	return s
}

func accept(t testing.TB, l *sock.Socket) *sock.Socket {
	t.Helper()
	waitPoll(t, l, in)
	s, err := l.Accept()
	return closeLater(t, s, err)
}

func bound(t testing.TB, n sock.Network, to netip.AddrPort) *sock.Socket {
	t.Helper()
	s := newSocket(t, n)
	must(t, s.Bind(to))
	return s
}

func needV6(t testing.TB) {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback6, sock.ListenOptions{})
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skip("no ::1 here")
	}
	closeLater(t, l, err).Close()
}

func send(t testing.TB, s *sock.Socket, data string) {
	t.Helper()
	if n, err := s.Send([]byte(data)); n != len(data) || err != nil {
		t.Fatalf("Send = %d, %v", n, err)
	}
}

// receive waits for data and receives it into a buffer of the given size.
func receive(t testing.TB, s *sock.Socket, size int) string {
	t.Helper()
	waitPoll(t, s, in)
	b := make([]byte, size)
	n, err := s.Recv(b)
	if err != nil {
		t.Fatalf("Recv = %d, %v", n, err)
	}
	return string(b[:n])
}

// wantReceive receives as receive does, and verifies what comes.
func wantReceive(t testing.TB, s *sock.Socket, size int, want string) {
	t.Helper()
	if got := receive(t, s, size); got != want {
		t.Errorf("received %q, want %q", got, want)
	}
}

// waitReadable waits until n bytes can be received.
func waitReadable(t testing.TB, s *sock.Socket, n int) {
	t.Helper()
	for end := time.Now().Add(timeout); ; {
		waitPoll(t, s, in)
		if got, err := unix.IoctlGetInt(int(s.Handle()), unix.TIOCINQ); err != nil || got >= n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the data")
		}
	}
}

// option returns the value of a socket option.
func option(t testing.TB, s *sock.Socket, level, name int) int {
	t.Helper()
	v, err := unix.GetsockoptInt(int(s.Handle()), level, name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantError verifies that an error is an *Error with the given operation, handle and cause.
func wantError(t testing.TB, err error, op string, handle uintptr, cause error) {
	t.Helper()
	var e *sock.Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("%v (%T) is not a *sock.Error", err, err)
	case e.Op != op || e.Handle != handle || cause != nil && !errors.Is(err, cause):
		t.Errorf("%v; want %s on socket %d: %v", err, op, int(handle), cause)
	}
}

// none is the handle in errors without a socket.
const none = ^uintptr(0)

// blocking reports whether a handle is in blocking mode.
func blocking(t testing.TB, h uintptr) bool {
	t.Helper()
	flags, err := unix.FcntlInt(h, unix.F_GETFL, 0)
	if err != nil {
		t.Fatal("descriptor " + strconv.Itoa(int(h)) + ": " + err.Error())
	}
	return flags&unix.O_NONBLOCK == 0
}

// abstract returns an abstract Unix address that is unique to this process.
func abstract(name string) string { return fmt.Sprintf("@socknotify-%d-%s", os.Getpid(), name) }
