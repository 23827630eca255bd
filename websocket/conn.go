package websocket

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/durations"
)

// A Conn is a WebSocket connection of a Server. Its methods may be called concurrently. None of
// them waits for the peer, except for Flush.
type Conn struct {
	// Value is for the program. The Server does not use it.
	Value any

	server *Server
	stream stream.Stream // its Value is the Conn

	lastMessage atomic.Int64 // when a message was received, or, with IdleTimeout, written
	closeAt     atomic.Int64 // when CloseTimeout ends, or 0

	// The next fields are used by the goroutine that runs the functions of the stream.
	decoder    *decoder      // nil while nothing is incomplete
	lastIn     time.Duration // when something was received
	pinged     time.Duration // when a ping was sent that nothing has followed, or 0
	protocol   uint16        // Subprotocol's place in Server.Subprotocols and one more, or 0
	discarded  uint16        // KiB, of each read rounded up; at most maxDiscarded+1
	controls   uint32        // pings and pongs in the second controlsAt, with MaxPings
	controlsAt uint32        // since the server's start
	compressed bool          // permessage-deflate was negotiated; does not change
	deaf       bool          // what is received is discarded
	halfClosed bool          // the end of the stream to the peer follows what is queued
	answered   bool          // the peer's close frame was received
}

// Subprotocol returns the subprotocol that was chosen, or the empty string.
func (c *Conn) Subprotocol() string {
	if c.protocol == 0 {
		return ""
	}
	return c.server.Subprotocols[c.protocol-1]
}

// NetConn returns the connection below, a *net.TCPConn or a *park.Conn around a *tls.Conn, for
// example for its addresses. The caller must not read, write, park or close it.
func (c *Conn) NetConn() net.Conn { return c.stream.NetConn() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.stream.RemoteAddr() }

// Queued returns the number of bytes that wait for the peer.
func (c *Conn) Queued() int { return c.stream.Queued() }

// Close sends a close frame, and closes the connection when the peer has answered it and ended its
// stream, or after CloseTimeout. It does not wait for that. Messages that the peer has sent before
// are no longer delivered. The reason is cut to 123 bytes. Close fails with socknotify.ErrInvalid
// for a code that must not be sent, and with ErrClosed if the connection is closed or being closed.
func (c *Conn) Close(code Code, reason string) error {
	if !code.valid() || !utf8.ValidString(reason) {
		return errInvalidClose
	}
	e := &CloseError{Code: code, Reason: reason}
	return c.shut(e, e)
}

// Abort closes the connection without a close frame. Bytes that are queued are lost.
func (c *Conn) Abort() error { return c.stream.Abort(ErrClosed) }

// shut sends the close frame of e, unless one was sent. OnClose gets err.
func (c *Conn) shut(e *CloseError, err error) error {
	if d := c.server.closeTimeout(); d > 0 {
		c.closeAt.CompareAndSwap(0, int64(durations.Add(c.server.now(), d)))
	}
	return c.stream.WriteLast(closeFrame(e.Code, e.Reason), err)
}

// maxDiscarded bounds what is received after the last frame that is handled, in KiB, while the peer
// is given time to end its stream. It is more than the buffers of the two systems hold.
const maxDiscarded = 16 << 10

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// consume handles bytes that were received.
func (c *Conn) consume(b []byte) {
	c.lastIn, c.pinged = c.server.now(), 0
	if c.deaf {
		c.discarded = uint16(min(int(c.discarded)+(len(b)+1<<10-1)>>10, maxDiscarded+1))
		return
	}
	d := c.decoder
	if d == nil {
		d = decoders.Get().(*decoder)
		d.began = c.lastIn
	}
	c.decoder = d
	limit := c.server.limit
	limit.compression = c.compressed
	for len(b) > 0 && !c.deaf {
		a, n, err := d.next(b, &limit)
		if err != nil {
			c.fail(err)
			break
		}
		b = b[n:]
		switch a.op {
		case 0:
			continue
		case byte(Text), byte(Binary):
			c.message(d, a)
		case opPing, opPong:
			f := c.server.OnPong
			switch {
			case !c.control():
				c.fail(errPings)
			case a.op == opPing:
				c.pong(a.payload)
			case f != nil:
				c.handle(func() error {
					f(c, a.payload)
					return nil
				})
			}
		case opClose:
			c.closed(a.payload)
		}
		if d.idle() {
			d.began = c.server.now()
		}
	}
	if c.deaf || d.idle() {
		c.dropDecoder()
	}
}

// dropDecoder gives the decoder back, if there is one.
func (c *Conn) dropDecoder() {
	if d := c.decoder; d != nil {
		c.decoder = nil
		d.reset()
		decoders.Put(d)
	}
}

// control counts a ping or pong. It reports whether the peer may send it.
func (c *Conn) control() bool {
	most := c.server.MaxPings
	if most <= 0 {
		return true
	}
	if second := uint32(c.lastIn / time.Second); second != c.controlsAt {
		c.controls, c.controlsAt = 0, second
	}
	if int64(c.controls) >= min(int64(most), math.MaxUint32) {
		return false
	}
	c.controls++
	return true
}

// message handles a message.
func (c *Conn) message(d *decoder, a arrival) {
	if a.compressed {
		var err error
		if d.inflated, err = inflate(d.inflated[:0], a.payload, c.server.limit.message); err != nil {
			c.fail(err)
			return
		}
		if a.payload = d.inflated; a.op == byte(Text) && !utf8.Valid(a.payload) {
			c.fail(errNotUTF8)
			return
		}
	}
	c.lastMessage.Store(int64(c.lastIn))
	if c.stream.Closing() {
		return
	}
	s := c.server
	s.calls.Add(1)
	c.handle(func() error {
		if !s.TimeCalls {
			return s.OnMessage(c, Kind(a.op), a.payload)
		}
		began := time.Now()
		err := s.OnMessage(c, Kind(a.op), a.payload)
		s.times.Record(time.Since(began))
		return err
	})
}

// handle calls a handler. If it fails, handle ends the connection.
func (c *Conn) handle(f func() error) {
	err := c.server.log.Guard(c.NetConn(), f)
	if err == nil {
		return
	}
	e := &CloseError{Code: CodeInternalError}
	var own *CloseError
	if errors.As(err, &own) && own.Code.valid() {
		e = own
	}
	c.shut(e, err)
}

// fail ends the connection because of what the peer has sent. Its further bytes cannot be
// understood, and are discarded.
func (c *Conn) fail(err error) {
	c.deaf = true
	c.server.log.Log(serving.LevelBadPeer, "connection ended because of what its peer has sent",
		"err", err, "remote", serving.Peer{Conn: c.NetConn()})
	var e *CloseError
	if !errors.As(err, &e) {
		e = &CloseError{Code: CodeInternalError}
	}
	c.shut(e, e)
}

// closed handles a close frame.
func (c *Conn) closed(payload []byte) {
	e, err := parseClose(payload)
	if err != nil {
		c.fail(err)
		return
	}
	c.deaf, c.answered = true, true
	c.shut(e, e)
}

// due handles the timeouts, and the end of a connection that is being closed. It returns the time
// until something is due next, or 0.
func (c *Conn) due() time.Duration {
	s := c.server
	now := s.now()
	next := time.Duration(0)
	passed := func(from, d time.Duration) bool {
		left := durations.Add(from, d) - now
		if d > 0 && left > 0 && (next == 0 || left < next) {
			next = left
		}
		return d > 0 && left <= 0
	}
	if c.stream.Closing() {
		if at := c.closeAt.Load(); at > 0 && passed(time.Duration(at), 1) || c.discarded > maxDiscarded {
			c.cutOff()
		} else if c.deaf && !c.halfClosed {
			// The peer gets the close frame and then the end of the stream, and ends its own. A
			// connection that is closed while there is something to read would be reset instead,
			// and the close frame lost.
			c.halfClosed = true
			if c.stream.CloseWrite() != nil && c.answered {
				c.stream.Close(nil) // the peer waits for the end
			}
		}
		return next
	}
	switch {
	case c.decoder != nil && passed(c.decoder.began, s.readTimeout()):
		s.late.Add(1)
		c.dropDecoder()
		c.fail(errHalfMessage)
		return c.due()
	case passed(time.Duration(c.lastMessage.Load()), max(s.IdleTimeout, 0)):
		s.idle.Add(1)
		c.shut(errNoMessage, errNoMessage)
		return c.due()
	case s.pingInterval() == 0:
	case c.pinged > 0:
		if passed(c.pinged, s.pongTimeout()) {
			c.stream.Abort(ErrIdle)
		}
	case passed(c.lastIn, s.pingInterval()):
		c.pinged = now
		c.Ping(nil)
		passed(now, s.pongTimeout())
	}
	return next
}

// cutOff ends a connection whose peer does not end it.
func (c *Conn) cutOff() {
	if c.stream.Queued() > 0 {
		c.stream.Abort(nil)
	} else {
		c.stream.Close(nil)
	}
}

// finish calls OnClose. The connection is closed.
func (c *Conn) finish(err error) {
	c.dropDecoder()
	if err == io.EOF {
		err = &CloseError{Code: CodeAbnormal, Remote: true}
	}
	if f := c.server.OnClose; f != nil {
		f(c, err)
	}
}

// Flush waits until everything that was written has been handed to the system, or the connection
// has ended. In a handler that writes more than MaxQueued it holds the handler back until the peer
// has read. It fails with ErrClosed if the connection has ended, and with the cause of ctx.
func (c *Conn) Flush(ctx context.Context) error { return c.stream.Flush(ctx) }
