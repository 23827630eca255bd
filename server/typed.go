package server

import "unsafe"

// The server itself does not depend on the type of the connections' states. Its connections are of type conn, each
// inside a Conn[S], and it calls the handler through calls, which typed[S] implements. So the code of a program
// grows with each S by this file and the methods of Conn[S] and Server[S] alone.

// calls is a handler as the server calls it.
type calls interface {
	// newConn makes a connection, which is inside a Conn[S].
	newConn() *conn

	open(c *conn) error
	data(c *conn, buf []byte) error
	closed(c *conn, cause error)

	// hasWritable reports whether writable may be called.
	hasWritable() bool
	writable(c *conn) error
}

// typed is a Handler[S] as calls.
type typed[S any] struct {
	handler Handler[S]
	writer  WritableHandler[S] // the same, or nil
}

func newTyped[S any](h Handler[S]) *typed[S] {
	w, _ := h.(WritableHandler[S])
	return &typed[S]{h, w}
}

// connOf returns the Conn[S] that a connection is inside. It may be called for a connection of newConn alone, and
// with the same S: newConn returns a pointer to the first field of a Conn[S], which is a pointer to the whole.
func connOf[S any](c *conn) *Conn[S] { return (*Conn[S])(unsafe.Pointer(c)) }

func (t *typed[S]) newConn() *conn { return &new(Conn[S]).conn }

func (t *typed[S]) open(c *conn) error             { return t.handler.Open(connOf[S](c)) }
func (t *typed[S]) data(c *conn, buf []byte) error { return t.handler.Data(connOf[S](c), buf) }
func (t *typed[S]) closed(c *conn, cause error)    { t.handler.Close(connOf[S](c), cause) }
func (t *typed[S]) hasWritable() bool              { return t.writer != nil }
func (t *typed[S]) writable(c *conn) error         { return t.writer.Writable(connOf[S](c)) }
