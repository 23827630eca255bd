// Package sock is small non-blocking sockets: what a handler calls after a notification.
//
// No call here blocks. One that cannot go on returns [ErrWouldBlock], a value that allocates nothing.
// The sockets are not watched by Go's own poller; register them with a socknotify port, by
// Registration.Conn. A socket knows in which directions it has been drained since the port last notified,
// and vouches for that by itself, so enabling its registration again costs no system call where nothing
// has happened since (X5).
//
// All methods may be called at once by any number of goroutines, Close included: the system closes the
// descriptor when no call uses it any more, so no call ever meets another socket of the same number. Of
// two receives at once, though, either may get the earlier bytes; so one goroutine at a time should
// receive, and one send.
//
// Errors are *[Error], but for ErrWouldBlock, io.EOF and what [Socket.Err] finds.
package sock

import (
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// ErrWouldBlock says that the call cannot go on now: wait for EventIn or EventOut.
var ErrWouldBlock = fdstate.ErrWouldBlock

// A Socket is one non-blocking socket. The zero value is closed; [Socket.AcceptInto] can open it. A Socket
// must not be copied.
type Socket struct {
	fd fdstate.FD
}

// What is known of a socket, in its fd's Kind.
const (
	kindStream = 1 << iota // can end
	kindTCP                // a short receive tells something
	kindMixed              // a listener whose connections must be asked whether they are TCP
)

func (s *Socket) is(kind uint32) bool { return s.fd.Kind()&kind != 0 }

func kindOf(stream, tcp bool) (kind uint32) {
	if stream {
		kind |= kindStream
	}
	if tcp {
		kind |= kindTCP
	}
	return kind
}

// An Error is a failed call on a socket. errors.Is and errors.As see its cause.
type Error struct {
	Op     string  // the system call, or what was tried
	Handle uintptr // the socket; all ones where there was none
	Err    error   // the system's error, net.ErrClosed, or os.ErrInvalid; around it the address, or what was wrong
}

// Error says operation, socket and cause.
func (e *Error) Error() string {
	s := "sock: " + e.Op
	if e.Handle != ^uintptr(0) {
		s += " on socket " + strconv.FormatUint(uint64(e.Handle), 10)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail makes the error of a call.
func (s *Socket) fail(op string, err error) error { return &Error{op, s.Handle(), err} }

func closed(op string) error { return &Error{op, ^uintptr(0), net.ErrClosed} }

// Handle is the system's handle of the socket, all ones where the system has closed it, which after Close it
// does when no call uses it any more. A registration made of it,
// rather than of the socket, knows nothing of draining and closing.
func (s *Socket) Handle() uintptr { return s.fd.Handle() }

// SyscallConn returns the socket's handle for system calls that this package does not have. Control, Read and Write call
// their function once, and the handle is not closed before the function returns. A function that returns false reports
// that its receive or send would have blocked: Read and Write then return [ErrWouldBlock], and do not wait. The error is
// always nil.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return &s.fd, nil }

// Close ends the socket's registration, if it has one, without an EventRemove (G9), and closes the socket
// as soon as no other call uses it. Every later call, a second Close included, returns net.ErrClosed.
func (s *Socket) Close() error {
	if h := s.Handle(); h != ^uintptr(0) {
		switch err := s.fd.Close(); {
		case err == nil:
			return nil
		case !errors.Is(err, net.ErrClosed):
			return &Error{"close", h, err}
		}
	}
	return closed("close")
}

// adopt takes a handle that is the caller's alone into a new socket.
func adopt(h uintptr, stream, tcp bool) *Socket {
	s := new(Socket)
	s.fd.SetKind(kindOf(stream, tcp))
	s.fd.Open(h)
	return s
}
