package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/socknotify/socknotify/sock"
)

func (c *Conn) Close() error {
	if t := c.tls(); t != nil {
		t.closeNotify() // if it fails, the stream has ended already
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wClosing)
}

func (c *Conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wAborting | wReset)
}

// end begins to close the connection, by wClosing or wAborting. The lock is held.
func (c *Conn) end(bits uint32) error {
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
		c.extra.out.drop(&c.shared().buffers)
		c.word.And(^uint32(wHeld))
	default:
		c.sendHeld()
		if word = c.word.Load(); word&wAborting != 0 { // it has failed
			return nil
		}
	}
	if word&wHijacked != 0 { // the queued bytes are sent as if there were no hijacker
		c.cancelHijack()
	}
	if word&wOut != 0 && bits&wAborting == 0 {
		s := c.shared()
		c.extra.out.since = s.Wheel.Now()
		s.Wheel.Hasten(c, c.lingerLimit())
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

// EndByServer closes the connection at once, because the server ends.
func (c *Conn) EndByServer(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause)
	if c.word.Load()&(wHijacked|wDead) == 0 {
		c.Socket().Shutdown(sock.ShutBoth)
	}
}

// fail closes the connection now, with a cause.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause)
}

// failLocked is fail with the lock held. The first cause stays.
func (c *Conn) failLocked(cause error) {
	if c.word.Load()&(wAborting|wDead) != 0 {
		return
	}
	c.abort(cause, knownCause)
}

// abort closes the connection now. The first cause stays. The lock is held.
func (c *Conn) abort(cause error, found finding) {
	if e := c.ensureEnding(); e.found == noCause {
		e.cause, e.found = cause, found
	}
	c.end(wAborting)
}

// lost closes the connection because a call of its socket failed. The lock is held.
//
// The system reports the reason to one call, and EPIPE or ENOTCONN to others. Since receives are
// made without the lock, such an error can get here before the reason. So it is the cause only
// until a better one comes.
func (c *Conn) lost(err error) {
	word := c.word.Load()
	found := knownCause
	if isVague(err) {
		found = vagueCause
	}
	if found == vagueCause && word&(wDetached|wDead) == 0 {
		if e := c.Socket().Err(); e != nil && !errors.Is(e, net.ErrClosed) {
			err, found = &lostError{e}, knownCause
		}
	}
	switch {
	case word&wDead != 0:
	case word&wAborting == 0:
		c.abort(err, found)
	case c.found() == vagueCause && found == knownCause:
		c.extra.ending.cause, c.extra.ending.found = err, found
	}
}

func isVague(err error) bool {
	return err == errLost || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// cause returns the cause for the handler's Close. The lock is held.
//
// If every call on a TCP connection has got EPIPE, the peer has ended its stream and then reset the
// connection.
func (c *Conn) cause() error {
	if c.found() == noCause {
		return nil
	}
	cause := c.extra.ending.cause
	if c.found() == vagueCause && cause != errLost && c.link.listener.TCP {
		return &lostError{syscall.ECONNRESET}
	}
	return cause
}

// found returns what is known of the cause. The lock is held.
func (c *Conn) found() finding {
	if c.extra == nil || c.extra.ending == nil {
		return noCause
	}
	return c.extra.ending.found
}

// failed handles EventErr, with other events or alone, and reports whether the connection is lost.
func (c *Conn) failed(buf []byte, alone bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.Socket().Err()
	switch {
	case err != nil:
		err = &lostError{err}
	case !alone:
		return false
	default: // the port would report EventErr alone again and again
		if _, err = c.Socket().Recv(buf); err == nil || err == sock.ErrWouldBlock || err == io.EOF {
			err = errLost
		} else {
			err = &lostError{err}
		}
	}
	c.lost(err)
	return true
}

func (c *Conn) Context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.ensureEnding()
	if e.ctx == nil {
		e.ctx, e.cancel = context.WithCancelCause(context.Background())
		if c.word.Load()&(wAborting|wDead) != 0 {
			e.cancel(e.cause)
		}
	}
	return e.ctx
}

// cancelContext ends the context, if there is one. The lock is held.
func (c *Conn) cancelContext() {
	if x := c.extra; x != nil && x.ending != nil && x.ending.ctx != nil {
		x.ending.cancel(c.cause())
	}
}

// closeHijacked is Close of a hijacker's net.Conn. After Resume it closes nothing.
func (c *Conn) closeHijacked(h *hijacked) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil || c.extra.hijacked != h {
		return net.ErrClosed
	}
	return c.end(wClosing)
}

// endHijacked closes a connection whose socket was given to a hijacker. The lock is held.
func (c *Conn) endHijacked(bits uint32) {
	x := c.extra
	if l, ok := x.hijacked.nc.(interface{ SetLinger(int) error }); ok && bits&wReset != 0 {
		l.SetLinger(0)
	}
	x.hijacked.nc.Close()
	c.releaseHijacked(bits | wAborting) // there is no socket to send on
}

// cancelHijack ends the waiting of a hijacker for the socket, with an error. The lock is held.
func (c *Conn) cancelHijack() {
	x, why := c.extra, net.ErrClosed
	if c.found() != noCause {
		why = x.ending.cause
	}
	x.hijacked.resolve(nil, why)
	x.hijacked = nil
}

// releaseHijacked ends a hijack. If the connection has no owner, a worker is woken. The lock is
// held.
func (c *Conn) releaseHijacked(bits uint32) {
	for {
		word := c.word.Load()
		next := word&^(wHijacked|wReleased|wPaused) | bits
		if word&wReleased != 0 {
			next &^= wOwned
		}
		if c.word.CompareAndSwap(word, next) {
			if next&wOwned == 0 {
				c.wake()
			}
			return
		}
	}
}
