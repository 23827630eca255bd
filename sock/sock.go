// Package sock provides non-blocking sockets for use with a socknotify port. Use them instead of connections of package net
// where the CPU time of a port's handlers matters, or where a port accepts connections.
//
// No call blocks. A call that would block returns [ErrWouldBlock] without allocating. The sockets are not
// registered with Go's own poller; register them with a socknotify port, by
// Registration.Conn. A socket records the directions in which
// it has been drained since the port's latest notification. If it has been drained, enabling its registration again
// needs no system call.
//
// All methods, including Close, may be called concurrently. The system closes the descriptor only when no call uses
// it any more, so a call never operates on another socket that was given the same number. If two goroutines receive
// concurrently, either may receive the earlier bytes. So only one goroutine at a time should receive, and only one
// should send.
//
// Errors are of type *[Error], except ErrWouldBlock, io.EOF and the result of [Socket.Err].
package sock

// The files, in the order of a socket's life:
//
//	sock.go      a Socket, its handle, Close; create_*.go: New on each system
//	network.go, options.go  kinds of sockets, Bind, and options
//	listen.go    Listen and Accept
//	stream.go    Recv, Send, and several buffers at once; sendfile.go: SendFile
//	datagram.go  batches of datagrams; packetinfo*.go: the address that one was sent to
//	held.go      a reference for many calls
//	detach.go    Adopt, Detach, Dup
//	sys_*.go     the calls of each system; addr_raw.go: its addresses

import (
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// ErrWouldBlock is returned by a call that would block. The caller should wait for EventIn or EventOut.
var ErrWouldBlock = fdstate.ErrWouldBlock

// A Socket is a non-blocking socket. The zero value is a closed socket, which [Socket.AcceptInto] can open. A
// Socket must not be copied.
type Socket struct {
	fd fdstate.FD
}

// The bits of a socket's FD.Kind.
const (
	kindStream   = 1 << iota // a stream, which can end
	kindTCP                  // TCP: a receive shorter than its buffer may have drained the socket
	kindMaybeTCP             // a listener that is not TCP, but may accept TCP connections
	kindInfo                 // RecvBatch sets Message.Local (SetPacketInfo)
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

// An Error describes a failed call on a socket. It wraps the cause.
type Error struct {
	Op     string  // the system call or operation
	Handle uintptr // the handle of the socket, or ^uintptr(0) if there was none
	Err    error   // the system's error, net.ErrClosed or os.ErrInvalid, possibly wrapped with details
}

// Error returns a message with the operation, the socket and the cause.
func (e *Error) Error() string {
	s := "sock: " + e.Op
	if e.Handle != ^uintptr(0) {
		s += " on socket " + strconv.FormatUint(uint64(e.Handle), 10)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail returns an Error for s.
func (s *Socket) fail(op string, err error) error { return &Error{op, s.Handle(), err} }

func closed(op string) error { return &Error{op, ^uintptr(0), net.ErrClosed} }

// Handle returns the system's handle of the socket. It returns ^uintptr(0) once the system has closed the handle, which
// happens after Close as soon as no call uses the socket. If a program registers the handle instead of the Socket, the
// port does not learn that the socket has been drained or closed.
func (s *Socket) Handle() uintptr { return s.fd.Handle() }

// SyscallConn returns the socket's handle for system calls that this package does not have. Control, Read and Write call
// their function once, and the handle is not closed before the function returns. A function that returns false reports
// that its receive or send would have blocked: Read and Write then return [ErrWouldBlock], and do not wait. The error is
// always nil.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return &s.fd, nil }

// Close ends the socket's registration, if it has one, without an EventRemove. The system closes the socket as soon
// as no other call uses it. Every later call, including a second Close, fails with net.ErrClosed.
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

// fromHandle returns a new socket that owns h. No other goroutine may use h.
func fromHandle(h uintptr, stream, tcp bool) *Socket {
	s := new(Socket)
	s.fd.SetKind(kindOf(stream, tcp))
	s.fd.Open(h)
	return s
}
