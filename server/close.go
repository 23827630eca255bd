package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

func (c *conn) Close() error {
	if t := c.tls(); t != nil {
		t.closeNotify() // where it fails there is nothing to end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wClosing)
}

func (c *conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(wAborting | wReset)
}

// end begins to close without a failure. The lock is held.
func (c *conn) end(bits uint32) error {
	word := c.word.Load()
	if word&bits == bits || word&(wAborting|wDead) != 0 {
		return net.ErrClosed
	}
	if word&(wHijacked|wDetached) == wHijacked|wDetached {
		c.endHijacked(bits)
		return nil
	}
	if word&wHijacked != 0 { // what is queued is sent as without a hijacker
		c.cancelHijack(c.whyEnded())
	}
	if word&wOut != 0 && bits&wAborting == 0 {
		s := c.server()
		c.extra.since = s.wheel.Now()
		s.wheel.Hasten(c, c.lingerLimit())
	}
	// In one swap: to a worker that finds neither bit the connection is one like others, and it calls Data.
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

// fail closes the connection now, for a cause.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause, wAborting)
}

// failLocked is fail under the lock. The first cause is the one that Close is told.
func (c *conn) failLocked(cause error, bits uint32) {
	if c.word.Load()&(wAborting|wDead) != 0 {
		return
	}
	x := c.ensureExtra()
	if !x.failed {
		x.cause, x.failed = cause, true
	}
	c.end(bits)
}

// lost closes the connection because a call of its socket failed. The lock is held.
//
// The system tells one call why a connection is gone, and others EPIPE or ENOTCONN, maybe before that one has come
// here: a receive is made without the lock. So these are a cause only until a better one comes.
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
		c.failLocked(err, wAborting)
		c.extra.vague = vague
	case x != nil && x.vague && !vague:
		x.cause, x.vague = err, false
	}
}

func isVague(err error) bool {
	return err == errLost || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}

// cause is what Close is told. The lock is held.
//
// Where a connection of TCP is gone and no call was told why, its peer has ended its stream, and reset the connection
// then: that is EPIPE for every call.
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

// failed is for a notification of an error, with others or alone: it reports whether the connection is lost.
func (c *conn) failed(buf []byte, alone bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.socket().Err()
	switch {
	case err != nil:
		err = &lostError{err}
	case !alone:
		return false
	default: // or the port would report it again and again
		if _, err = c.socket().Recv(buf); err == nil || err == sock.ErrWouldBlock || err == io.EOF {
			err = errLost
		} else {
			err = &lostError{err}
		}
	}
	c.lost(err)
	return true
}

// A lostError is a failure of the socket that a notification told of.
type lostError struct{ err error }

func (e *lostError) Error() string { return "server: connection: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// A timeoutError is the type of ErrIdle and ErrSlow.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string        { return e.text }
func (e *timeoutError) Timeout() bool        { return true }
func (e *timeoutError) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A PanicError is the cause of a connection whose handler panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // of its goroutine then, as debug.Stack formats it
}

// Error says what the handler panicked with.
func (e *PanicError) Error() string { return fmt.Sprintf("server: handler panicked: %v", e.Value) }

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

// release lets go of a connection, so that its next notification is anybody's; or it ends it.
func (w *worker) release(c *conn) {
	for {
		word := c.word.Load()
		if word&wSpecial != 0 {
			switch {
			case word&wResumed != 0:
				if c.word.And(^uint32(wResumed)); word&(wOver|wPaused) == 0 {
					w.data(c)
				}
				continue
			case word&(wHijacked|wDetached|wOut|wDead) == wHijacked:
				c.handOver()
				continue
			case word&(wHijacked|wDetached|wDead) == wHijacked:
				// It is the hijacker's when nothing is queued.
			case word&(wHijacked|wDead) == wHijacked:
				if !c.word.CompareAndSwap(word, word|wReleased) {
					continue
				}
				return
			case w.ends(c, word):
				return
			case word&(wMore|wLast) != 0 && word&wNoRead == 0:
				s := c.socket()
				if !c.word.CompareAndSwap(word, word&^wOwned|wResumed) {
					continue
				}
				if f := filter(word) &^ socknotify.EventIn; f != 0 {
					w.enable(c, s, f)
				}
				c.wake() // others have their turn before
				return
			}
		}
		s := c.socket() // before somebody else owns it
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if w.enable(c, s, filter(word)); !c.reacquire(filter(word)) {
			return
		}
	}
}

// letGoAll is release for connections that were kept, in one call of the port. What has come up meanwhile is
// left to a worker that is woken for it, because no handler is to be called here.
func (w *worker) releaseKept(kept []socknotify.Notification[*Key]) {
	for i := range kept {
		if c := (*conn)(kept[i].Key); c != nil {
			kept[i].Key = nil
			w.queueEnable(c)
		}
	}
	for w.nregs > 0 {
		regs := w.regs[:w.nregs]
		w.nregs = 0
		w.port.Process(regs, nil, 0)
		for i := range regs {
			r := &regs[i]
			c, s, f := (*conn)(r.Key), r.Sock, r.Filter
			r.Key, r.Sock = nil, nil // an idle worker holds on to nobody
			if r.Result != nil {
				c.refused(s, r.Result)
			}
			if c.reacquire(f) {
				w.queueEnable(c) // in the place of this one, or of one before
			}
		}
	}
}

// letGo gives up a connection, and has it enabled with the others.
func (w *worker) queueEnable(c *conn) {
	for {
		s, word := c.socket(), c.word.Load()
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if word&wSpecial != 0 {
			c.wake()
			return
		}
		r := &w.regs[w.nregs]
		w.nregs++
		r.Sock, r.Key, r.Filter = s, c.key(), filter(word)
		return
	}
}

// ownAgain owns a connection that was let go of and enabled for a filter, if that is no longer what it waits
// for. Meanwhile another may have owned it, and enabled it for more; before this enable, perhaps.
func (c *conn) reacquire(f socknotify.Events) bool {
	word := c.word.Load()
	return word&wOwned == 0 && filter(word) != f && c.word.Or(wOwned)&wOwned == 0
}

// enable is for a connection that is not owned.
func (w *worker) enable(c *conn, s *sock.Socket, f socknotify.Events) {
	r := &w.reg[0]
	r.Sock, r.Key, r.Filter, r.Op = s, c.key(), f, socknotify.OpEnable
	w.server.shards[c.shard].Process(w.reg[:], nil, 0)
	r.Sock, r.Key = nil, nil // an idle worker holds on to nobody
	if r.Result != nil {
		c.refused(s, r.Result)
	}
}

// refused is for a socket that could not be enabled, unless it is owned by another worker by now.
func (c *conn) refused(s *sock.Socket, err error) {
	c.mu.Lock()
	is := c.socket() == s && c.word.Load()&(wOwned|wAborting) == 0
	if is {
		c.failLocked(err, wAborting)
	}
	c.mu.Unlock()
	if srv := c.server(); is && refusedBySystem(err) && srv.refusals.now() {
		srv.log(slog.LevelWarn, "cannot watch a connection, closing it", "error", err)
	}
}

// ends takes a connection that is owned to its end, where its word says so.
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

// remove ends the registration. Its EventRemove, which may be another worker's, is the last of the
// connection; without a registration nothing comes, and this is.
func (w *worker) remove(c *conn) {
	w.current = nil
	r := &w.reg[0]
	r.Sock, r.Key, r.Filter, r.Op = c.socket(), c.key(), 0, socknotify.OpRemove
	w.server.shards[c.shard].Process(w.reg[:], nil, 0)
	r.Sock, r.Key = nil, nil
	if r.Result != nil {
		w.finish(c)
	}
}

// finish is after the last notification.
func (w *worker) finish(c *conn) {
	s := w.server
	word := c.word.Or(wDead | wOwned)
	if word&wDead != 0 {
		return
	}
	c.mu.Lock()
	s.wheel.Stop(c) // under the lock, as who sets it has seen that the connection lives
	cause := c.cause()
	c.mu.Unlock()
	if word&wHandshake != 0 {
		s.handshakeFailed(c, cause)
		w.free(c)
		return
	}
	w.current = c
	s.handler.closed(c, cause)
	w.current = nil
	if t := c.tls(); t != nil {
		t.sendCloseNotify()
	}
	w.free(c)
}

// free closes the socket and forgets the connection.
func (w *worker) free(c *conn) {
	s := w.server
	c.mu.Lock()
	if x := c.extra; x != nil {
		s.counts.queued.Add(int64(x.head - len(x.queue)))
		x.queue, x.head = nil, 0
	}
	if c.word.Load()&wReset != 0 {
		c.socket().SetLinger(0)
	}
	c.socket().Close()
	if c.word.Load()&wDetached == 0 {
		c.held.Release()
	}
	c.mu.Unlock()
	s.removeConn(c)
}
