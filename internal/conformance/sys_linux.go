package conformance

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// States that settle waits for.
const (
	stateIn         = unix.POLLIN
	stateOut        = unix.POLLOUT
	stateErr        = unix.POLLERR
	stateDead       = unix.POLLHUP
	statePeerClosed = unix.POLLRDHUP
	stateUrgent     = unix.POLLPRI
)

// tellsLate is false: the system tells a port while it changes the socket.
const tellsLate = false

// settle waits until all of these states hold of a socket, so that a port must know of them.
func settle(e *env, s handle, states int16) {
	e.Helper()
	e.until("the socket's state has arrived", func() bool {
		f := []unix.PollFd{{Fd: int32(s.Handle()), Events: states}}
		_, err := unix.Poll(f, 0)
		return err == nil && f[0].Revents&states == states
	})
}

// threads counts the process's threads.
func threads(e *env) int {
	e.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		e.Skip("threads cannot be counted: ", err)
	}
	return len(tasks)
}

// processorTime is what the process has used.
func processorTime(e *env) time.Duration {
	e.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		e.Fatalf("getrusage: %v", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// An fd is a socket that only this package's own helpers know.
type fd int

func (f fd) Handle() uintptr { return uintptr(f) }

// ownFD closes a descriptor at the end, unless it was replaced or closed by then.
func (e *env) ownFD(f int, err error) fd {
	e.Helper()
	if err != nil {
		e.Fatalf("socket: %v", err)
	}
	return fd(f)
}

// closeFD closes a descriptor now.
func (e *env) closeFD(f fd) {
	e.Helper()
	if err := unix.Close(int(f)); err != nil {
		e.Fatalf("close: %v", err)
	}
}

// dup makes a second descriptor of a socket; the case closes it.
func (e *env) dup(s handle) fd {
	e.Helper()
	return e.ownFD(unix.FcntlInt(s.Handle(), unix.F_DUPFD_CLOEXEC, 0))
}

// become makes a number name the socket that another names, closing what it named before, if
// anything. The case closes it.
func (e *env) become(number uintptr, s handle) fd {
	e.Helper()
	return e.ownFD(int(number), unix.Dup3(int(s.Handle()), int(number), unix.O_CLOEXEC))
}

// tryBecome is become, which does not fail here.
func (e *env) tryBecome(number uintptr, s handle, _ int) fd {
	e.Helper()
	return e.become(number, s)
}

// sendUrgent sends a byte of urgent data.
func (e *env) sendUrgent(s handle) {
	e.Helper()
	if err := unix.Sendto(int(s.Handle()), []byte{'!'}, unix.MSG_OOB|unix.MSG_NOSIGNAL, nil); err != nil {
		e.Fatalf("urgent data: %v", err)
	}
}

// sendEmpty sends an empty datagram.
func (e *env) sendEmpty(s handle) {
	e.Helper()
	if err := unix.Sendto(int(s.Handle()), nil, unix.MSG_NOSIGNAL, nil); err != nil {
		e.Fatalf("empty datagram: %v", err)
	}
}

// shutListener shuts a listener down without closing it.
func (e *env) shutListener(s handle) {
	e.Helper()
	if err := unix.Shutdown(int(s.Handle()), unix.SHUT_RDWR); err != nil {
		e.Fatalf("shutdown: %v", err)
	}
}

// unixStream makes an unconnected Unix stream; the case closes it.
func (e *env) unixStream() fd {
	e.Helper()
	return e.ownFD(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0))
}

// unixListen makes a Unix stream listen, and returns where.
func (e *env) unixListen(s fd) string {
	e.Helper()
	path := e.TempDir() + "/s"
	err := unix.Bind(int(s), &unix.SockaddrUnix{Name: path})
	if err == nil {
		err = unix.Listen(int(s), 8)
	}
	if err != nil {
		e.Fatalf("listen: %v", err)
	}
	return path
}

func (e *env) unixConnect(s fd, path string) {
	e.Helper()
	if err := unix.Connect(int(s), &unix.SockaddrUnix{Name: path}); err != nil {
		e.Fatalf("connect: %v", err)
	}
}

// packets makes a connected pair of Unix sequenced-packet sockets; the case closes them.
func (e *env) packets() (a, b fd) {
	e.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		e.Fatalf("socketpair: %v", err)
	}
	return fd(fds[0]), fd(fds[1])
}

// vsock makes an unconnected vsock stream.
func (e *env) vsock() *socket {
	e.Helper()
	f, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		e.Skip("this kernel has no vsock: ", err)
	}
	return e.keep(sock.Adopt(uintptr(f), sock.RefuseBlocking))
}

// mptcp makes an unconnected MPTCP socket.
func (e *env) mptcp() *socket {
	e.Helper()
	const nonblocking = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	f, err := unix.Socket(unix.AF_INET, nonblocking, unix.IPPROTO_MPTCP)
	switch err {
	case unix.EINVAL, unix.EPROTONOSUPPORT, unix.ENOPROTOOPT:
		e.Skip("this kernel has no MPTCP: ", err)
	case nil:
	default:
		e.Fatalf("socket: %v", err)
	}
	return e.keep(sock.Adopt(uintptr(f), sock.RefuseBlocking))
}

func (e *env) write(s handle, data string) {
	e.Helper()
	if _, err := unix.Write(int(s.Handle()), []byte(data)); err != nil {
		e.Fatalf("write: %v", err)
	}
}

// noSockets opens descriptors that are no sockets, and says what each is. They are closed at the
// end.
func (e *env) noSockets() map[string]fd {
	e.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		e.Fatalf("pipe: %v", err)
	}
	all := map[string]fd{
		"pipe":     fd(pipe[0]),
		"pipe end": fd(pipe[1]),
		"eventfd":  e.ownFD(unix.Eventfd(0, unix.EFD_CLOEXEC)),
		"epoll":    e.ownFD(unix.EpollCreate1(unix.EPOLL_CLOEXEC)),
		"file":     e.ownFD(unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)),
		"device":   e.ownFD(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)),
	}
	e.Cleanup(func() {
		for _, f := range all {
			unix.Close(int(f))
		}
	})
	return all
}

// The system's errors for a number that is not open, and for what is no socket.
var (
	errNotOpen  error = unix.EBADF
	errNoSocket error = unix.ENOTSOCK
	errRefused  error = unix.ECONNREFUSED
	errReset    error = unix.ECONNRESET
)
