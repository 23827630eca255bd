// Package unwrap finds the socket below a connection or a listener that wraps one of package net, and reads what a
// wrapper holds.
//
// The connection directly below a wrapper is, in this order, what the program's hook returns, what one of the methods
// NetConn, Unwrap, Raw and TCPConn returns, or the one embedded connection of a struct. The search ends at the first
// layer with a SyscallConn method that does not fail.
package unwrap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"syscall"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
)

// A Hook returns the connection directly below a wrapper. If it returns nil, the conventions apply. If it returns its
// argument, the search ends there: the argument must have a SyscallConn method, or else the wrapper is opaque.
type Hook = func(net.Conn) net.Conn

// A Socket is the connection below all wrappers.
type Socket struct {
	Conn syscall.Conn
	Raw  syscall.RawConn
	// Plain reports that no wrapper can hold bytes: the connection that was asked for is a *net.TCPConn or a
	// *net.UnixConn itself.
	Plain bool
	// Lazy reports that a wrapper reads a header when it is first used, as that of go-proxyproto does. A read deadline
	// that passes then makes the wrapper take the header for missing. A call of RemoteAddr reads the header.
	Lazy bool
}

// ErrNil is returned for a nil connection or listener.
var ErrNil = errors.New("nil connection")

// An OpaqueError is returned for a wrapper below which no socket can be found.
type OpaqueError struct {
	Type  string // of the wrapper that was asked for
	Layer string // of the innermost wrapper that was found
	Err   error  // of its SyscallConn method, or nil
}

func (e *OpaqueError) Error() string {
	layer := e.Type
	if e.Layer != e.Type {
		layer = e.Layer + " in " + e.Type
	}
	if e.Err != nil {
		return fmt.Sprintf("no socket found below %s: SyscallConn: %v", layer, e.Err)
	}
	return "no socket found below " + layer + ": no method SyscallConn, NetConn, Unwrap, Raw or TCPConn, and no " +
		"embedded connection"
}

func (e *OpaqueError) Unwrap() error { return e.Err }

// maxLayers bounds the search: a method may return its own receiver.
const maxLayers = 32

// Find returns the socket below conn. hook may be nil. Find fails with ErrNil, with an *OpaqueError, and if the
// connection that it has found cannot be compared.
func Find(conn net.Conn, hook Hook) (Socket, error) {
	var s Socket
	if Plain(conn) {
		if isNil(conn) {
			return s, ErrNil
		}
		c := conn.(syscall.Conn)
		raw, err := c.SyscallConn()
		return Socket{Conn: c, Raw: raw, Plain: true}, err
	}
	c, raw, err := search(conn, func(in net.Conn) net.Conn {
		next, lazy := below(in, hook)
		s.Lazy = s.Lazy || lazy
		return next
	})
	if err == nil && !reflect.ValueOf(c).Comparable() {
		err = fmt.Errorf("%T is not comparable", c)
	}
	if err != nil {
		return Socket{}, err
	}
	s.Conn, s.Raw = c, raw
	return s, nil
}

// search returns the first layer with a SyscallConn method that does not fail: top, or one below it.
func search[T any](top T, below func(T) T) (syscall.Conn, syscall.RawConn, error) {
	var failed error
	in := top
	for range maxLayers {
		if isNil(in) {
			return nil, nil, ErrNil
		}
		if c, ok := any(in).(syscall.Conn); ok {
			raw, err := c.SyscallConn()
			if err == nil {
				return c, raw, nil
			}
			failed = err
		}
		next := below(in)
		if any(next) == nil {
			break
		}
		in = next
	}
	return nil, nil, &OpaqueError{
		Type: fmt.Sprintf("%T", top), Layer: fmt.Sprintf("%T", in), Err: failed}
}

// A TLSConn is a server's TLS connection: a *tls.Conn or a *tlsrecord.Conn.
type TLSConn interface {
	net.Conn
	HandshakeContext(context.Context) error
	ConnectionState() tls.ConnectionState
	NetConn() net.Conn
}

// AsTLS returns conn if it is a TLSConn.
func AsTLS(conn net.Conn) (TLSConn, bool) {
	switch conn.(type) {
	case *tls.Conn, *tlsrecord.Conn:
		return conn.(TLSConn), true
	}
	return nil, false
}

// PendingTLS returns the outermost layer whose TLS handshake is not complete, or nil if there is none.
func PendingTLS(conn net.Conn, hook Hook) (pending TLSConn) {
	Any(conn, hook, func(c net.Conn) bool {
		t, ok := AsTLS(c)
		if ok = ok && !t.ConnectionState().HandshakeComplete; ok {
			pending = t
		}
		return ok
	})
	return pending
}

// Any reports whether holds is true of conn or of a connection below it.
func Any(conn net.Conn, hook Hook, holds func(net.Conn) bool) bool {
	for range maxLayers {
		if isNil(conn) {
			return false
		}
		if holds(conn) {
			return true
		}
		conn, _ = below(conn, hook)
	}
	return false
}

// Plain reports whether conn is a connection of package net, which holds no bytes.
func Plain(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// below returns the connection directly below conn, or nil if none is known. lazy is as in Socket.
func below(conn net.Conn, hook Hook) (next net.Conn, lazy bool) {
	if hook != nil {
		if next = hook(conn); same(next, conn) {
			return nil, false
		}
	}
	if next == nil {
		switch c := conn.(type) {
		case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
			return nil, false
		case interface{ NetConn() net.Conn }:
			next = c.NetConn()
		case interface{ Unwrap() net.Conn }:
			next = c.Unwrap()
		case interface{ Raw() net.Conn }:
			next = c.Raw()
		case interface{ TCPConn() (*net.TCPConn, bool) }:
			if t, ok := c.TCPConn(); ok && t != nil {
				next = t
			}
		case interface{ TCPConn() *net.TCPConn }:
			if t := c.TCPConn(); t != nil {
				next = t
			}
		default:
			next = embedded[net.Conn](conn, "")
		}
	}
	if next == nil {
		return nil, false
	}
	_, raw := conn.(interface{ Raw() net.Conn })
	_, tcp := conn.(interface {
		TCPConn() (*net.TCPConn, bool)
	})
	return next, raw && tcp
}

// embedded returns the one exported embedded field of the struct v, or of the struct that v points to, that implements T.
// An exported field with the given name need not be embedded. It returns nil if there is none, or more than one.
func embedded[T any](v any, name string) (found T) {
	s := reflect.ValueOf(v)
	if s.Kind() == reflect.Pointer {
		s = s.Elem()
	}
	if s.Kind() != reflect.Struct {
		return found
	}
	n := 0
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if !f.IsExported() || !f.Anonymous && f.Name != name {
			continue
		}
		if in, ok := s.Field(i).Interface().(T); ok && !isNil(in) {
			found = in
			n++
		}
	}
	if n != 1 {
		var none T
		return none
	}
	return found
}

// same reports whether a and b are one value of a type that can be compared.
func same(a, b net.Conn) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// isNil reports whether v is nil or a nil pointer.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// A Listening is the socket below all wrappers of a listener.
type Listening struct {
	Conn syscall.Conn
	Raw  syscall.RawConn
	// Plain reports that the listener that was asked for is a *net.TCPListener or a *net.UnixListener itself. The Accept
	// method of any other listener may do more than accept, such as count connections, and must be called.
	Plain bool
}

// FindListener returns the listening socket below l. The listener directly below a wrapper is what its method Unwrap,
// NetListener or Raw returns, its one embedded listener, or its field Listener. FindListener fails with ErrNil and with
// an *OpaqueError.
func FindListener(l net.Listener) (Listening, error) {
	plain := false
	switch l.(type) {
	case *net.TCPListener, *net.UnixListener:
		plain = true
	}
	c, raw, err := search(l, belowListener)
	if err != nil {
		return Listening{}, err
	}
	return Listening{Conn: c, Raw: raw, Plain: plain}, nil
}

func belowListener(l net.Listener) net.Listener {
	switch l := l.(type) {
	case interface{ Unwrap() net.Listener }:
		return l.Unwrap()
	case interface{ NetListener() net.Listener }:
		return l.NetListener()
	case interface{ Raw() net.Listener }:
		return l.Raw()
	}
	return embedded[net.Listener](l, "Listener")
}

// IsUnfit reports whether err has an *UnfitError.
func IsUnfit(err error) bool {
	if err == nil {
		return false // before unfit, which is allocated
	}
	var unfit *UnfitError
	return errors.As(err, &unfit)
}
