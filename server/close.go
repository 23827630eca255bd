package server

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// Close closes the connection when what was written has been sent, or the peer has not taken any of it for
// Server.WriteTimeout. Nothing is received any more. As with any TCP connection, bytes of the peer that were not read
// make the system reset it. The handler's Close follows. A second Close returns net.ErrClosed.
func (c *conn) Close() error {
	if t := c.tls(); t != nil {
		t.closeNotify() // if it fails, the stream has ended already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wClosing)
}

// Abort closes the connection now. What is queued is dropped, and a TCP peer receives a reset.
func (c *conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wAborting | wReset)
}

// end begins to close the connection, by wClosing or wAborting. The lock is held.
func (c *conn) end(bits uint32) error {
	word := c.word.Load()
	if word&bits == bits || word&(wAborting|wDead) != 0 {
		return net.ErrClosed
	}
	if word&(wHijacked|wDetached) == wHijacked|wDetached {
		c.endHijacked(bits)
		return nil
	}
	switch {
	case word&wHeld == 0:
	case bits&wReset != 0:
		c.dropQueue(c.extra)
		c.word.And(^uint32(wHeld))
	default:
		c.sendHeld()
		if word = c.word.Load(); word&wAborting != 0 { // it has failed
			return nil
		}
	}
	if word&wHijacked != 0 { // the queued bytes are sent as if there were no hijacker
		c.cancelHijack(c.whyEnded())
	}
	if word&wOut != 0 && bits&wAborting == 0 {
		s := c.server()
		c.extra.since = s.wheel.Now()
		s.wheel.Hasten(c, c.lingerLimit())
	}
	if bits&wAborting != 0 {
		c.cancelContext()
	}
	// In one swap, because a worker that finds neither wHijacked nor wClosing would call Data.
	for {
		if word = c.word.Load(); c.word.CompareAndSwap(word, word&^wHijacked|bits) {
			break
		}
	}
	if word&wOwned == 0 {
		c.wake()
	}
	return nil
}

// fail closes the connection now, with a cause.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause)
}

// failLocked is fail with the lock held. The first cause stays.
func (c *conn) failLocked(cause error) {
	if c.word.Load()&(wAborting|wDead) != 0 {
		return
	}
	x := c.ensureExtra()
	if !x.failed {
		x.cause, x.failed = cause, true
	}
	c.end(wAborting)
}

// lost closes the connection because a call of its socket failed. The lock is held.
//
// The system reports the reason to one call, and EPIPE or ENOTCONN to others. Since receives are made without the lock,
// such an error can get here before the reason. So it is the cause only until a better one comes.
func (c *conn) lost(err error) {
	word := c.word.Load()
	vague := isVague(err)
	if vague && word&(wDetached|wDead) == 0 {
		if e := c.socket().Err(); e != nil && !errors.Is(e, net.ErrClosed) {
			err, vague = &lostError{e}, false
		}
	}
	switch x := c.extra; {
	case word&wDead != 0:
	case word&wAborting == 0:
		c.failLocked(err)
		c.extra.vague = vague
	case x != nil && x.vague && !vague:
		x.cause, x.vague = err, false
	}
}

func isVague(err error) bool {
	return err == errLost || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// cause returns the cause for the handler's Close. The lock is held.
//
// If every call on a TCP connection has got EPIPE, the peer has ended its stream and then reset the connection.
func (c *conn) cause() error {
	x := c.extra
	if x == nil {
		return nil
	}
	if x.vague && x.cause != errLost && c.listener.tcp {
		return &lostError{syscall.ECONNRESET}
	}
	return x.cause
}

// failed handles EventErr, with other events or alone, and reports whether the connection is lost.
func (c *conn) failed(buf []byte, alone bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.socket().Err()
	switch {
	case err != nil:
		err = &lostError{err}
	case !alone:
		return false
	default: // the port would report EventErr alone again and again
		if _, err = c.socket().Recv(buf); err == nil || err == sock.ErrWouldBlock || err == io.EOF {
			err = errLost
		} else {
			err = &lostError{err}
		}
	}
	c.lost(err)
	return true
}

// ends removes a connection that is owned, if its word says so, and reports whether the connection ends.
func (w *worker) ends(c *conn, word uint32) bool {
	switch {
	case word&wDead != 0:
		return true
	case word&wAborting != 0,
		word&(wClosing|wOut) == wClosing,
		word&(wShut|wEOF|wOut|wPaused) == wShut|wEOF:
		w.remove(c)
		return true
	}
	return false
}

// remove removes the registration. The worker that dequeues the EventRemove finishes the connection. If there was no
// registration, nothing will be dequeued, and remove finishes it.
func (w *worker) remove(c *conn) {
	w.current = nil
	r := &w.reg[0]
	r.Conn, r.Key, r.Filter, r.Op = c.socket(), c.key(), 0, socknotify.OpRemove
	w.server.shards[c.shard].Process(w.reg[:], nil, 0)
	r.Conn, r.Key = nil, nil
	if r.Result != nil {
		w.finish(c)
	}
}

// finish calls the handler's Close and frees the connection, after its last notification.
func (w *worker) finish(c *conn) {
	s := w.server
	word := c.word.Or(wDead | wOwned)
	if word&wDead != 0 {
		return
	}
	c.mu.Lock()
	s.wheel.Stop(c) // with the lock held, because timers are set with it held, after a look at wDead
	cause := c.cause()
	c.cancelContext()
	if c.extra != nil {
		c.extra.timers = nil
	}
	c.mu.Unlock()
	if word&wHandshake != 0 {
		s.handshakeFailed(c, cause)
		w.free(c)
		return
	}
	w.current = c
	c.dropSources()
	s.handler.closed(c, cause)
	w.current = nil
	if t := c.tls(); t != nil {
		t.sendCloseNotify()
	}
	w.free(c)
}

// free closes the socket and removes the connection from the table.
func (w *worker) free(c *conn) {
	s := w.server
	var wrapper net.Conn
	c.mu.Lock()
	if x := c.extra; x != nil {
		wrapper, x.wrapper = x.wrapper, nil
		s.counts.queued.Add(int64(x.head - len(x.queue) - x.behind))
		c.dropQueue(x)
	}
	c.dropInput()
	if c.word.Load()&wReset != 0 {
		c.socket().SetLinger(0)
	}
	c.socket().Close()
	if c.word.Load()&wDetached == 0 {
		c.held.Release()
	} else {
		s.counts.hijacked.Add(-1)
	}
	c.mu.Unlock()
	s.removeConn(c)
	if wrapper != nil {
		s.guard("Close of a wrapped connection panicked", wrapper.Close) // its socket is closed
	}
}

// Context returns a context that is done when the connection has failed, was aborted or has ended: before the handler's
// Close is called, and also while one of the handler's calls is running. context.Cause returns the cause that Close is
// given, or context.Canceled if that is nil. The context is made by the first call.
func (c *conn) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.ensureExtra()
	if x.ctx == nil {
		x.ctx = new(cancelable)
		x.ctx.Context, x.ctx.cancel = context.WithCancelCause(context.Background())
		if c.word.Load()&(wAborting|wDead) != 0 {
			x.ctx.cancel(x.cause)
		}
	}
	return x.ctx.Context
}

// cancelContext ends the context, if there is one. The lock is held.
func (c *conn) cancelContext() {
	if x := c.extra; x != nil && x.ctx != nil {
		x.ctx.cancel(c.cause())
	}
}
