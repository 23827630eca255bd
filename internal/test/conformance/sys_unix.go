//go:build unix

package conformance

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// A state is conditions that settle waits for.
type state = sockettest.State

const (
	stateIn         = sockettest.In
	stateOut        = sockettest.Out
	stateErr        = sockettest.Err
	stateDead       = sockettest.Dead
	statePeerClosed = sockettest.PeerClosed
	stateUrgent     = sockettest.Urgent
)

// tellsLate is false: the system tells a port while it changes the socket.
const tellsLate = false

// settle waits until all of these states hold of a socket, so that a port must know of them.
func settle(e *env, s handle, states state) {
	e.Helper()
	e.until("the socket's state has arrived", func() bool {
		now := sockettest.Now(int(s.Handle()))
		if sockettest.HidesEnd && now&stateIn != 0 {
			now |= statePeerClosed // behind the data, as far as can be known
		}
		return now&states == states
	})
}

// ownFD returns a descriptor that was just opened, or ends the case.
func (e *env) ownFD(f int, err error) fd {
	e.Helper()
	e.mustDo("socket", err)
	return fd(f)
}

// packets makes a connected pair of Unix sequenced-packet sockets; the case closes them.
func (e *env) packets() (a, b fd) {
	fds, err := sockettest.UnixPair(unix.SOCK_SEQPACKET)
	e.mustDo("socketpair", err)
	return fd(fds[0]), fd(fds[1])
}

// closeFD closes a descriptor now.
func (e *env) closeFD(f fd) {
	e.Helper()
	e.mustDo("close", unix.Close(int(f)))
}

// dup makes a second descriptor of a socket; the case closes it.
func (e *env) dup(s handle) fd {
	e.Helper()
	return e.ownFD(sockettest.Dup(s.Handle(), 0))
}

// become makes a number name the socket that another names, closing what it named before, if
// anything. The case closes it.
func (e *env) become(number uintptr, s handle) fd {
	return e.ownFD(int(number), sockettest.Become(int(number), s.Handle()))
}

// tryBecome is become, which does not fail here.
func (e *env) tryBecome(number uintptr, s handle, _ int) fd {
	e.Helper()
	return e.become(number, s)
}

// sendUrgent sends a byte of urgent data.
func (e *env) sendUrgent(s handle) {
	e.mustDo("urgent data", sockettest.SendUrgent(s.Handle(), '!'))
}

// sendEmpty sends an empty datagram.
func (e *env) sendEmpty(s handle) {
	e.mustDo("empty datagram", sockettest.SendEmpty(s.Handle()))
}

// shutListener shuts a listener down without closing it.
func (e *env) shutListener(s handle) {
	e.mustDo("shutdown", unix.Shutdown(int(s.Handle()), unix.SHUT_RDWR))
}

func (e *env) write(s handle, data string) {
	if _, err := unix.Write(int(s.Handle()), []byte(data)); err != nil {
		e.Fatalf("write: %v", err)
	}
}

// ownNoSockets opens what only some systems have that is no socket.
var ownNoSockets map[string]func() (int, error)

// noSockets opens descriptors that are no sockets, and says what each is. They are closed at the
// end.
func (e *env) noSockets() map[string]fd {
	r, w, err := sockettest.Pipe()
	e.mustDo("pipe", err)
	all := map[string]fd{
		"pipe":     fd(r),
		"pipe end": fd(w),
		"file":     e.ownFD(unix.Open(os.Args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)),
		"device":   e.ownFD(unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)),
	}
	for what, open := range ownNoSockets {
		all[what] = e.ownFD(open())
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
