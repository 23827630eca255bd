package server

import (
	"time"
	"unsafe"
)

// A Conn is a connection of a server. Read may be called from the handler's calls, and by the goroutine that the
// handler has given the connection to after Pause. All other methods may be called by any goroutine at any time.
//
// An idle Conn has no goroutine and no buffer.
type Conn[S any] struct {
	conn // first: see connOf; its exported methods are those of a Conn

	// Value belongs to the handler.
	Value S
}

// AfterFunc calls f after d, unless the timer is stopped before: where Data would be called, and never at the same time as
// another of the handler's calls for this connection. An error that f returns has the effect of one of Data. f is also
// called while the connection is paused, so it can answer for a goroutine that takes too long; then it must not receive.
// While the connection is hijacked f waits for Resume, and after Close it is not called. It may be called 0.1 s late. A
// timer does not count as activity for IdleTimeout.
func (c *Conn[S]) AfterFunc(d time.Duration, f func(c *Conn[S]) error) *Timer {
	t := &Timer{conn: &c.conn, f: func() error { return f(c) }}
	t.Reset(d)
	return t
}

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
