package server

import (
	"unsafe"

	"github.com/socknotify/socknotify/server/internal/conn"
)

// The server itself does not depend on the type of the connections' states. Its connections are of
// type conn.Conn, each inside a Conn[S], and it calls the handler through typed[S], which is a
// caller. So the code of a program grows with each S by this file and the methods of Conn[S] and
// Server[S] alone.

// A caller makes connections, and is what they call.
type caller interface {
	conn.Server

	// newConn makes a connection, which is inside a Conn[S].
	newConn() *conn.Conn
}

// typed is a Handler[S] and its server, as connections call them.
type typed[S any] struct {
	*server
	handler Handler[S]
	writer  WritableHandler[S] // the same, or nil
}

func newTyped[S any](s *server, h Handler[S]) caller {
	w, _ := h.(WritableHandler[S])
	return &typed[S]{s, h, w}
}

// connOf returns the Conn[S] that a connection is inside. It may be called for a connection of
// newConn alone, and with the same S: newConn returns a pointer to the first field of a Conn[S],
// which is a pointer to the whole.
func connOf[S any](c *conn.Conn) *Conn[S] { return (*Conn[S])(unsafe.Pointer(c)) }

func (t *typed[S]) newConn() *conn.Conn { return &new(Conn[S]).in }

func (t *typed[S]) Open(c *conn.Conn) error             { return t.handler.Open(connOf[S](c)) }
func (t *typed[S]) Data(c *conn.Conn, buf []byte) error { return t.handler.Data(connOf[S](c), buf) }
func (t *typed[S]) Close(c *conn.Conn, cause error)     { t.handler.Close(connOf[S](c), cause) }

func (t *typed[S]) Writable(c *conn.Conn) error {
	if t.writer == nil {
		return nil
	}
	return t.writer.Writable(connOf[S](c))
}
