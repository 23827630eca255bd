package sse

import (
	"context"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A responseConn is the answer to a request whose connection cannot be taken over, as a connection.
// Its Read ends when the client has gone. The goroutine of the request must wait for it.
type responseConn struct {
	net.Conn          // one end of a pipe, for Read: nothing is written to the other one
	other    net.Conn // closed when the client has gone
	w        http.ResponseWriter
	control  *http.ResponseController
	remote   net.Addr
	ctx      context.Context // of the request
	forget   func() bool     // makes the end of ctx do nothing
	closed   chan struct{}
	writing  atomic.Pointer[time.Time] // the deadline of the Write in progress or failed, nil without one

	mu       sync.Mutex // held while w is used
	ended    bool       // w must not be used any more
	deadline time.Time  // of a Write
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func newResponseConn(w http.ResponseWriter, r *http.Request) *responseConn {
	in, other := net.Pipe()
	c := &responseConn{
		Conn: in, other: other, w: w, control: http.NewResponseController(w), remote: textAddr(r.RemoteAddr),
		ctx: r.Context(), closed: make(chan struct{}),
	}
	c.forget = context.AfterFunc(c.ctx, c.lost)
	return c
}

// lost ends Read, because the request's context has ended. net/http ends it when the client has
// gone, and also when the deadline of a Write has passed. That Write will fail, and its error is
// the cause then.
func (c *responseConn) lost() {
	if !c.late() {
		c.other.Close()
	}
}

// late reports whether the deadline of the Write in progress, or of one that has failed, has passed.
func (c *responseConn) late() bool {
	d := c.writing.Load()
	return d != nil && !time.Now().Before(*d)
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
	if d := c.deadline; !d.IsZero() {
		c.writing.Store(&d)
	}
	if n, err = c.w.Write(b); err == nil {
		err = c.control.Flush()
	}
	if err != nil {
		if c.late() {
			err = os.ErrDeadlineExceeded // net/http's HTTP/2 says only that the stream is closed
		}
		return n, err // writing stays, because lost may run later
	}
	c.writing.Store(nil)
	if c.ctx.Err() != nil {
		c.other.Close() // lost may have left it to this Write
	}
	return n, nil
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
	c.deadline = t
	return c.control.SetWriteDeadline(t)
}

func (c *responseConn) RemoteAddr() net.Addr { return c.remote }
