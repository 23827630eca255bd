// Package nowait reads and writes the sockets of connections of package net without waiting, or up to
// a deadline that is no error. It is for the streams and tunnels of package park.
package nowait

import "syscall"

// A Socket is that of a connection. The zero value is for connections without one.
type Socket struct{ conn syscall.RawConn }

// Of returns the socket of a RawConn. On systems other than Unix it returns the zero value.
func Of(raw syscall.RawConn) (s Socket) {
	if supported {
		s.conn = raw
	}
	return s
}

// Raw returns the RawConn.
func (s Socket) Raw() syscall.RawConn { return s.conn }

// OK reports whether there is a socket. Without one no other method must be called.
func (s Socket) OK() bool { return s.conn != nil }

// A Reader is a Socket whose Read waits until there is something, but not beyond the read deadline
// of the connection.
type Reader struct{ Socket }

// A Writer is a Socket whose Write waits until all is taken, but not beyond the write deadline of
// the connection.
type Writer struct{ Socket }
