package sse

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A responseConn is the answer to a request whose connection cannot be taken over, as a connection.
// Its Read ends when the client has gone. The goroutine of the request must wait for it.
type responseConn struct {
	net.Conn // one end of a pipe, for Read: nothing is written to the other one
	w        http.ResponseWriter
	control  *http.ResponseController
	remote   net.Addr
	forget   func() bool // the request's context
	closed   chan struct{}

	mu    sync.Mutex // held while w is used
	ended bool       // w must not be used any more
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func newResponseConn(w http.ResponseWriter, r *http.Request) *responseConn {
	in, other := net.Pipe()
	return &responseConn{
		Conn: in, w: w, control: http.NewResponseController(w), remote: textAddr(r.RemoteAddr),
		forget: context.AfterFunc(r.Context(), func() { other.Close() }),
		closed: make(chan struct{}),
	}
}

// wait waits until the connection is closed, and nothing uses the ResponseWriter.
func (c *responseConn) wait() {
	<-c.closed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

func (c *responseConn) Write(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, net.ErrClosed
	}
	if n, err = c.w.Write(b); err == nil {
		err = c.control.Flush()
	}
	return n, err
}

// Close is called once, by a park.Conn.
func (c *responseConn) Close() error {
	err := c.Conn.Close()
	c.forget()
	if c.mu.TryLock() {
		c.mu.Unlock()
	} else {
		c.control.SetWriteDeadline(time.Unix(1, 0)) // ends a Write
	}
	close(c.closed)
	return err
}

func (c *responseConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return net.ErrClosed
	}
	return c.control.SetWriteDeadline(t)
}

func (c *responseConn) RemoteAddr() net.Addr { return c.remote }
