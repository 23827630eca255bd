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
	errLinger   = fmt.Errorf("%w: Close would block for it", os.ErrInvalid)
	errNoConn   = fmt.Errorf("%w: a nil connection", os.ErrInvalid)
	errOpen     = errors.New("the Socket to accept into is open, or calls on it are under way")
	errNoHandle = errors.New("it has no SyscallConn")
	errKind     = errors.New("it is a socket of another kind")

	// ErrBlocking says that a handle's calls block, and nobody said that they need not.
	ErrBlocking = errors.New("sock: handle is in blocking mode")
)

// Mode says what Adopt and Detach do with a handle in blocking mode.
type Mode int

const (
	// RefuseBlocking leaves it alone and returns ErrBlocking. Windows does not tell the mode, so there
	// every handle is refused.
	RefuseBlocking Mode = iota
	// MakeNonblocking changes its mode, for everybody who shares the open file.
	MakeNonblocking
)

// Adopt makes a Socket of a system's handle, which is the Socket's from then on. Where it fails the handle
// stays the caller's: ErrBlocking, or the system's error for what is no socket.
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
	s := adopt(handle, kind.stream, kind.tcp)
	// Package net's listeners are of MPTCP where they can be; their connections are of TCP if the peer's are.
	if kind.listening && !kind.tcp && sysLocalAddr(handle).IsValid() {
		s.fd.SetKind(s.fd.Kind() | kindMixed)
	}
	return s, nil
}

// Detach takes a net.Conn, net.Listener or net.PacketConn, or anything else that has SyscallConn, away from
// Go's poller: the Socket has the connection from then on, and the former owner finds it closed. What
// others still do with it ends with net.ErrClosed. A Unix listener's path stays. It must not be registered
// with a port; remove it first. Where Detach fails nothing has changed.
//
// A connection with bytes in a buffer of the program's, such as a tls.Conn or a bufio.Reader, must be
// emptied first: Detach takes the socket alone.
func Detach(c any, m Mode) (*Socket, error) {
	cl, closes := c.(interface{ Close() error })
	if !closes {
		return nil, &Error{"detach", ^uintptr(0), errNoHandle}
	}
	s, err := duplicate("detach", c, m)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(interface{ SetUnlinkOnClose(bool) }); ok {
		u.SetUnlinkOnClose(false)
	}
	if err := cl.Close(); err != nil && errors.Is(err, net.ErrClosed) {
		s.Close() // somebody closed it in between, and means it
		return nil, &Error{"detach", ^uintptr(0), err}
	}
	sysDetached(s.Handle())
	return s, nil
}

// Dup makes a Socket of a duplicate of the handle that a net.Conn, net.Listener or net.PacketConn has, or
// anything else with SyscallConn. That stays its owner's, and open; the two are one socket of the system's,
// which ends when both are closed, and a change of one's mode or options is one of the other's. Go's poller
// goes on watching it, too, at some cost for each thing that happens to it; Detach spares that.
func Dup(c any, m Mode) (*Socket, error) { return duplicate("dup", c, m) }

func duplicate(op string, c any, m Mode) (*Socket, error) {
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
		return s, dupErr
	}
	return nil, &Error{op, ^uintptr(0), err}
}

// Attach makes a net.Conn of a connected socket, with package net's own no-delay and keep-alive if it is of
// TCP. The Socket is closed, and its registration ended, as by Close; where Attach fails nothing has changed.
func Attach(s *Socket) (net.Conn, error) {
	return attach(s, net.FileConn, func(d description) bool { return !d.listening })
}

// AttachListener makes a net.Listener of a listening socket, as Attach does.
func AttachListener(s *Socket) (net.Listener, error) {
	return attach(s, net.FileListener, func(d description) bool { return d.listening })
}

// AttachPacketConn makes a net.PacketConn of a datagram socket, as Attach does.
func AttachPacketConn(s *Socket) (net.PacketConn, error) {
	return attach(s, net.FilePacketConn, func(d description) bool { return !d.stream })
}

// attach checks the kind itself: package net makes a listener of a connection, and the other way round.
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
		c, err = from(f) // has a duplicate of its own
		f.Close()
	}
	s.fd.Done()
	if err != nil {
		return none, &Error{"attach", h, err}
	}
	if err := s.Close(); err != nil {
		c.Close()
		return none, err // somebody else closed it in between
	}
	return c, nil
}
