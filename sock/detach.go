package sock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"syscall"
)

var (
	errLinger   = fmt.Errorf("%w: linger time above 0 would block Close", os.ErrInvalid)
	errNoConn   = fmt.Errorf("%w: nil connection", os.ErrInvalid)
	errOpen     = errors.New("the Socket to accept into is open or still in use")
	errNoHandle = errors.New("no SyscallConn or Close method")
	errKind     = errors.New("wrong kind of socket")
)

// ErrBlocking is returned by [Adopt], [Detach] and [Dup] for a handle in blocking mode, unless the Mode is
// MakeNonblocking.
var ErrBlocking = errors.New("sock: handle is in blocking mode")

// Mode selects how Adopt, Detach and Dup treat a handle in blocking mode.
type Mode int

const (
	// RefuseBlocking leaves the handle unchanged and returns ErrBlocking. Windows does not report the mode of
	// a handle, so on Windows every handle is refused.
	RefuseBlocking Mode = iota
	// MakeNonblocking makes the handle non-blocking. The mode changes for all handles that share the open file.
	MakeNonblocking
)

// Adopt returns a Socket that owns a handle of the system. If Adopt fails, the caller still owns the handle. It
// fails with ErrBlocking, or with the system's error if the handle is not a socket.
func Adopt(handle uintptr, m Mode) (*Socket, error) {
	kind, err := sysDescribe(handle)
	if err == nil && kind.blocking {
		if m != MakeNonblocking {
			err = ErrBlocking
		} else {
			err = sysNonblock(handle)
		}
	}
	if err != nil {
		return nil, &Error{"adopt", handle, err}
	}
	s := fromHandle(handle, kind.stream, kind.tcp)
	// A listener of package net uses MPTCP if the system supports it. A connection that it accepts is TCP
	// unless the peer uses MPTCP too.
	if kind.listening && !kind.tcp && sysLocalAddr(handle).IsValid() {
		s.fd.SetKind(s.fd.Kind() | kindMaybeTCP)
	}
	return s, nil
}

// Detach removes a connection from Go's poller and returns a Socket for it. c may be a net.Conn, a net.Listener, a
// net.PacketConn, or any other value with the methods SyscallConn and Close.
//
// The connection must not be registered with a port; remove it first. Detach closes c: calls on c that are in
// progress, and later calls, fail with net.ErrClosed. The path of a Unix listener is not removed. If Detach fails,
// c is unchanged.
//
// Detach transfers the socket only. Bytes that were read into a buffer of the program, for example by a tls.Conn or
// a bufio.Reader, stay there and must be consumed first.
func Detach(c any, m Mode) (*Socket, error) {
	cl, closes := c.(interface{ Close() error })
	if !closes {
		return nil, &Error{"detach", ^uintptr(0), errNoHandle}
	}
	s, err := duplicateConn("detach", c, m)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(interface{ SetUnlinkOnClose(bool) }); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := cl.Close(); err != nil && errors.Is(err, net.ErrClosed) {
		s.Close() // the connection was closed concurrently
		return nil, &Error{"detach", ^uintptr(0), err}
	}
	sysDetached(s.Handle())
	return s, nil
}

// Dup returns a Socket for a duplicate of the handle of c. c may be a net.Conn, a net.Listener, a net.PacketConn,
// or any other value with a SyscallConn method. c stays open.
//
// Both handles refer to the same socket of the system. The socket is closed when both handles are closed. Changing
// the mode or an option of one changes it for the other. The socket stays registered with Go's poller, which costs
// some time for each event. Detach avoids that.
func Dup(c any, m Mode) (*Socket, error) { return duplicateConn("dup", c, m) }

func duplicateConn(op string, c any, m Mode) (*Socket, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, &Error{op, ^uintptr(0), errNoHandle}
	}
	if v := reflect.ValueOf(c); v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &Error{op, ^uintptr(0), errNoConn}
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return nil, &Error{op, ^uintptr(0), err}
	}
	var s *Socket
	var dupErr error
	returned := false
	defer func() {
		if s != nil && !returned {
			s.Close() // Control has failed, panicked or ended its goroutine after it called the function
		}
	}()
	err = rc.Control(func(h uintptr) {
		var dup uintptr
		if dup, dupErr = sysDup(h); dupErr != nil {
			dupErr = &Error{op, h, dupErr}
			return
		}
		if s, dupErr = Adopt(dup, m); dupErr != nil {
			sysClose(dup)
			dupErr = &Error{op, h, errors.Unwrap(dupErr)}
		}
	})
	if err == nil {
		returned = true
		return s, dupErr
	}
	return nil, &Error{op, ^uintptr(0), err}
}

// Attach returns a net.Conn for a connected socket. A TCP connection receives package net's defaults for no-delay and
// keep-alive. Attach closes s and ends its registration, like Close. If Attach fails, s is unchanged.
func Attach(s *Socket) (net.Conn, error) {
	return attach(s, net.FileConn, func(d description) bool { return !d.listening })
}

// AttachListener returns a net.Listener for a listening socket. It closes s like [Attach].
func AttachListener(s *Socket) (net.Listener, error) {
	return attach(s, net.FileListener, func(d description) bool { return d.listening })
}

// AttachPacketConn returns a net.PacketConn for a datagram socket. It closes s like [Attach].
func AttachPacketConn(s *Socket) (net.PacketConn, error) {
	return attach(s, net.FilePacketConn, func(d description) bool { return !d.stream })
}

// attach checks the kind of the socket itself, because package net would return a listener for a connection, and a
// connection for a listener.
func attach[C interface{ Close() error }](s *Socket, from func(*os.File) (C, error), fits func(description) bool) (c C, err error) {
	var none C
	h, ok := s.fd.Use()
	if !ok {
		return none, closed("attach")
	}
	kind, err := sysDescribe(h)
	if err == nil && !fits(kind) {
		err = errKind
	}
	var dup uintptr
	if err == nil {
		dup, err = sysDup(h)
	}
	if err == nil {
		f := os.NewFile(dup, "socket")
		c, err = from(f) // duplicates the handle
		f.Close()
	}
	s.fd.Done()
	if err != nil {
		return none, &Error{"attach", h, err}
	}
	if err := s.Close(); err != nil {
		c.Close()
		return none, err // s was closed concurrently
	}
	return c, nil
}

// A description holds the properties of a handle that Adopt and Attach need.
type description struct{ stream, tcp, listening, blocking bool }
