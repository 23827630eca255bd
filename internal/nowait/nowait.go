// Package nowait reads and writes the sockets of connections of package net without waiting. It is for connections that
// package park has parked, to which any goroutine may write.
package nowait

import (
	"net"
	"syscall"
)

// A Socket is that of a connection. The zero value is for connections without one.
type Socket struct{ conn syscall.RawConn }

// Of returns the socket of conn, which is not a connection around another one. On systems other than Unix it returns the
// zero value.
func Of(conn net.Conn) (s Socket) {
	if !supported {
		return s
	}
	switch c := conn.(type) {
	case *net.TCPConn:
		s.conn, _ = c.SyscallConn()
	case *net.UnixConn:
		s.conn, _ = c.SyscallConn()
	}
	return s
}

// OK reports whether there is a socket. Without one no other method must be called.
func (s Socket) OK() bool { return s.conn != nil }
