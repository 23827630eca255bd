package websocket

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/socknotify/socknotify/internal/durations"
	"github.com/socknotify/socknotify/internal/nowait"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// A Conn is a WebSocket connection of a Server. Its methods may be called concurrently. None of them waits for the peer,
// except for Flush.
type Conn struct {
	// Value is for the program. The Server does not use it.
	Value any

	server   *Server
	conn     net.Conn      // a *net.TCPConn, a *net.UnixConn or a *park.Conn
	socket   nowait.Socket // of the innermost connection
	function func(net.Conn)
	protocol string
	index    int // in Server.conns, under Server.mu

	// The next fields are used by the goroutine that runs the connection's function.
	decoder *decoder      // nil while nothing is incomplete
	lastIn  time.Duration // when something was received
	pinged  time.Duration // when a ping was sent that nothing has followed, or 0

	plain      bool   // conn is what socket belongs to
	compressed bool   // permessage-deflate was negotiated
	deaf       bool   // what is received is discarded; used by the function
	halfClosed bool   // used by the function
	answered   bool   // the peer's close frame was received; used by the function
	discarded  uint16 // KiB, of each read rounded up; used by the function
	controls   uint16 // pings and pongs in the second controlsAt, with MaxPings
	controlsAt uint16 // since the server's start, modulo 65536

	mu          sync.Mutex
	lastMessage time.Duration // when a message was received, or, with IdleTimeout, written
	running     bool          // the function is running, or is about to be parked for the first time
	blocking    bool          // the connection cannot be parked, and has a goroutine
	writing     bool          // a goroutine is writing the queue
	closing     bool          // a close frame was sent, or is in the queue
	ended       bool
	closeAt     time.Duration // when CloseTimeout ends, or 0
	queue       *queue        // nil if nothing is queued
	err         error         // for OnClose
}

// Subprotocol returns the subprotocol that was chosen, or the empty string.
func (c *Conn) Subprotocol() string { return c.protocol }

// NetConn returns the connection below, a *net.TCPConn or a *park.Conn around a *tls.Conn, for example for its addresses.
// The caller must not read, write, park or close it.
func (c *Conn) NetConn() net.Conn { return c.conn }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Close sends a close frame, and closes the connection when the peer has answered it and ended its
// stream, or after CloseTimeout. It does not wait for that. Messages that the peer has sent before
// are no longer delivered. The reason is cut to 123 bytes. Close fails with socknotify.ErrInvalid
// for a code that must not be sent, and with ErrClosed if the connection is closed or being closed.
func (c *Conn) Close(code Code, reason string) error {
	if !code.valid() || !utf8.ValidString(reason) {
		return errInvalidClose
	}
	e := &CloseError{Code: code, Reason: reason}
	return c.shut(e)
}

// Abort closes the connection without a close frame. Bytes that are queued are lost.
func (c *Conn) Abort() error {
	if !c.abort(ErrClosed) {
		return ErrClosed
	}
	return nil
}

// shut sends a close frame, unless one was sent. OnClose gets e.
func (c *Conn) shut(e *CloseError) error { return c.shutWith(e, e) }

// shutWith is shut with another error for OnClose.
func (c *Conn) shutWith(e *CloseError, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.closing {
		return ErrClosed
	}
	c.closing, c.err = true, err
	if d := c.server.closeTimeout(); d > 0 {
		c.closeAt = durations.Add(c.server.now(), d)
	}
	if q := c.queue; q != nil && q.pong != nil { // nothing may follow a close frame
		c.add(q.pong)
		q.pong = nil
	}
	c.enqueue(closeFrame(e.Code, e.Reason), true, true)
	c.wake() // for CloseTimeout
	return nil
}

// abort closes the connection at once. err is for OnClose. It reports whether the connection was open. If the function is
// not running, it runs and ends the connection.
func (c *Conn) abort(err error) bool {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return false
	}
	c.ended = true
	if c.err == nil {
		c.err = err
	}
	switch err { // before OnClose is called
	case ErrSlow:
		c.server.slow.Add(1)
	case ErrIdle:
		c.server.idle.Add(1)
	}
	c.dropQueue()
	c.mu.Unlock()
	conn := c.conn
	if t, ok := innermost(conn).(*net.TCPConn); ok {
		t.SetLinger(0) // the system must not keep what the peer does not read
		if !c.plain {
			conn = socketFirst{conn, t}
		}
	}
	c.server.log.Guard(c.conn, func() error { return c.server.lot.CloseConn(conn) })
	return true
}

// A socketFirst closes the socket before the connection that wraps it, because package tls would wait for the peer. abort
// does not close the socket itself before it calls CloseConn: the lot finds a connection by its open socket, and would
// have to look at all its connections for one whose socket is closed.
type socketFirst struct {
	net.Conn
	socket *net.TCPConn
}

// NetConn returns the connection, so that the lot finds it.
func (s socketFirst) NetConn() net.Conn { return s.Conn }

func (s socketFirst) Close() error {
	s.socket.Close()
	return s.Conn.Close()
}

// innermost returns the connection below all wrappers that have a NetConn method.
func innermost(conn net.Conn) net.Conn {
	for range 32 {
		w, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		next := w.NetConn()
		if next == nil {
			break
		}
		conn = next
	}
	return conn
}

var readBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// maxDiscarded bounds what is received after the last frame that is handled, in KiB, while the peer
// is given time to end its stream. It is more than the buffers of the two systems hold.
const maxDiscarded = 16 << 10

// maxReads bounds the reads of one call of the function, after which other connections have their turn.
const maxReads = 16

// wrappedWait is the time for which a connection that wraps another is read when there was a notification. There may be
// only a part of a TLS record, or nothing.
const wrappedWait = 5 * time.Millisecond

var (
	decoders   = sync.Pool{New: func() any { return new(decoder) }}
	errGoexit  = errors.New("websocket: the handler called runtime.Goexit")
	errSettled = errors.New("websocket: ended") // c.err has the reason
)

// run is the connection's function: it handles what has arrived, and parks the connection. early is what was received with
// the handshake.
func (c *Conn) run(early []byte) {
	returned := false
	defer func() {
		if !returned {
			c.finish(errGoexit)
		}
	}()
	c.mu.Lock()
	c.running = true
	c.mu.Unlock()
	err := c.turn(early, false)
	if err == nil {
		err = c.park()
	}
	returned = true
	if err != nil {
		c.finish(err)
	}
}

// turn writes what is queued, and reads and handles what there is. If wait is set, it waits in Read until a timeout. An
// error ends the connection.
func (c *Conn) turn(early []byte, wait bool) error {
	if err := c.flush(); err != nil {
		return err
	}
	if len(early) > 0 {
		c.lastIn = c.server.now()
		c.consume(early)
	}
	buf := readBuffers.Get().(*[16 << 10]byte)
	defer readBuffers.Put(buf)
	for range maxReads {
		n, err := c.read(buf[:], wait)
		if n > 0 {
			c.lastIn, c.pinged = c.server.now(), 0
			c.consume(buf[:n])
		}
		if err == io.EOF {
			return &CloseError{Code: CodeAbnormal, Remote: true}
		}
		if err != nil {
			return err
		}
		if n < len(buf) {
			break
		}
	}
	return c.check()
}

// read reads what there is. It returns 0 and no error if there is nothing.
func (c *Conn) read(b []byte, wait bool) (int, error) {
	if c.plain && !wait {
		n, err := c.socket.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) { // of the lot's, because a timeout has passed
			c.conn.SetReadDeadline(time.Time{})
			n, err = c.socket.Read(b)
		}
		return n, err
	}
	if !wait {
		c.conn.SetReadDeadline(time.Now().Add(wrappedWait))
	}
	n, err := c.conn.Read(b)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = nil
	}
	return n, err
}

// consume handles bytes that were received.
func (c *Conn) consume(b []byte) {
	if c.deaf {
		c.discarded += uint16((len(b) + 1<<10 - 1) >> 10) // at most 16
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
	if second := uint16(c.lastIn / time.Second); second != c.controlsAt {
		c.controls, c.controlsAt = 0, second
	}
	if int(c.controls) >= min(most, math.MaxUint16) {
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
	c.mu.Lock()
	c.lastMessage = c.lastIn
	closing := c.closing || c.ended
	c.mu.Unlock()
	if closing {
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
	err := c.server.log.Guard(c.conn, f)
	if err == nil {
		return
	}
	e := &CloseError{Code: CodeInternalError}
	var own *CloseError
	if errors.As(err, &own) && own.Code.valid() {
		e = own
	}
	c.shutWith(e, err)
}

// fail ends the connection because of what the peer has sent. Its further bytes cannot be understood, and are discarded.
func (c *Conn) fail(err error) {
	c.deaf = true
	c.server.log.Log(serving.LevelBadPeer, "connection ended because of what its peer has sent", "err", err,
		"remote", serving.Peer{Conn: c.conn})
	var e *CloseError
	if !errors.As(err, &e) {
		e = &CloseError{Code: CodeInternalError}
	}
	c.shut(e)
}

// closed handles a close frame.
func (c *Conn) closed(payload []byte) {
	e, err := parseClose(payload)
	if err != nil {
		c.fail(err)
		return
	}
	c.deaf, c.answered = true, true
	c.shut(e)
}

// check handles the timeouts, and the end of a connection that is being closed.
func (c *Conn) check() error {
	s := c.server
	now := s.now()
	c.mu.Lock()
	ended, closing, closeAt, q, lastMessage := c.ended, c.closing, c.closeAt, c.queue, c.lastMessage
	stuck := q != nil && s.writeTimeout() > 0 && now >= durations.Add(q.since, s.writeTimeout())
	c.mu.Unlock()
	switch {
	case ended, closeAt > 0 && now >= closeAt, c.discarded > maxDiscarded:
		return errSettled
	case stuck:
		c.abort(ErrSlow)
		return errSettled
	case closing:
		if c.deaf && q == nil && !c.halfClosed {
			// The peer gets the close frame and then the end of the stream, and ends its own. A
			// connection that is closed while there is something to read would be reset instead,
			// and the close frame lost.
			c.halfClosed = true
			if c.closeWrite() != nil && c.answered {
				return errSettled // the peer waits for the end
			}
		}
	case c.decoder != nil && s.readTimeout() > 0 && now >= durations.Add(c.decoder.began, s.readTimeout()):
		s.late.Add(1)
		c.decoder = nil
		c.fail(errHalfMessage)
		return c.check()
	case s.IdleTimeout > 0 && now >= durations.Add(lastMessage, s.IdleTimeout):
		s.idle.Add(1)
		c.shut(errNoMessage)
	case s.pingInterval() == 0:
	case c.pinged > 0:
		if d := s.pongTimeout(); d > 0 && now >= durations.Add(c.pinged, d) {
			c.abort(ErrIdle)
			return errSettled
		}
	case now >= durations.Add(c.lastIn, s.pingInterval()):
		c.pinged = now
		c.Ping(nil)
	}
	return nil
}

// closeWrite ends the stream to the peer.
func (c *Conn) closeWrite() error {
	w, ok := c.conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return c.server.log.Guard(c.conn, w.CloseWrite)
}

// timeout returns the time until the next timeout, or a negative number. The caller holds c.mu.
func (c *Conn) timeout() time.Duration {
	s := c.server
	due := time.Duration(-1)
	add := func(from, d time.Duration) {
		if d <= 0 {
			return
		}
		if at := durations.Add(from, d); due < 0 || at < due {
			due = at
		}
	}
	if q := c.queue; q != nil {
		add(q.since, s.writeTimeout())
	}
	if c.closing {
		if c.closeAt > 0 {
			add(c.closeAt, 1)
		}
	} else {
		if c.decoder != nil {
			add(c.decoder.began, s.readTimeout())
		}
		add(c.lastMessage, s.IdleTimeout)
		switch {
		case s.pingInterval() == 0:
		case c.pinged > 0:
			add(c.pinged, s.pongTimeout())
		default:
			add(c.lastIn, s.pingInterval())
		}
	}
	if due < 0 {
		return -1
	}
	return max(due-s.now(), 1)
}

// park parks the connection. If it fails, the caller still owns the connection.
func (c *Conn) park() error {
	lot := c.server.lot
	c.mu.Lock()
	o := park.Options{IdleTimeout: c.timeout(), Writable: c.queue != nil && !c.writing}
	closing, toHalfClose := c.closing, c.deaf && !c.halfClosed
	c.running = false
	c.mu.Unlock()
	err := lot.ParkWith(c.conn, o, c.function)
	if err != nil {
		c.mu.Lock()
		c.running = true
		c.mu.Unlock()
		if errors.Is(err, park.ErrUnparkable) {
			c.server.goroutines.Go(c.block)
			return nil
		}
		return err
	}
	// What has changed since the lock was released was for a function that was neither running nor parked.
	c.mu.Lock()
	ended := c.ended
	again := !o.Writable && c.queue != nil && !c.writing || c.closing && !closing || c.atEnd(toHalfClose)
	c.mu.Unlock()
	switch {
	case ended:
		lot.CloseConn(c.conn) // the lot may not have had the connection when abort closed it
	case again:
		lot.Wake(c.conn)
	}
	return nil
}

// atEnd reports whether everything was written before the end of the stream to the peer.
// toHalfClose: that stream ends when a close frame was written. The caller holds c.mu.
func (c *Conn) atEnd(toHalfClose bool) bool {
	return c.queue == nil && c.closing && toHalfClose
}

// block serves a connection that cannot be parked.
func (c *Conn) block() {
	returned := false
	defer func() {
		if !returned {
			c.finish(errGoexit)
		}
	}()
	c.mu.Lock()
	c.blocking = true
	if c.queue != nil { // queued while the connection was to be parked
		c.startWriting()
	}
	c.mu.Unlock()
	var err error
	for err == nil {
		c.mu.Lock()
		deadline := time.Time{}
		if d := c.timeout(); d >= 0 {
			deadline = time.Now().Add(d)
		}
		if c.ended || c.atEnd(c.deaf && !c.halfClosed) {
			deadline = longAgo // turn has something to do
		}
		c.conn.SetReadDeadline(deadline) // under the lock, because of wake
		c.mu.Unlock()
		err = c.turn(nil, true)
	}
	returned = true
	c.finish(err)
}

var longAgo = time.Unix(1, 0)

// wake makes the function run, unless it is running. The caller holds c.mu.
func (c *Conn) wake() {
	switch {
	case c.blocking:
		c.conn.SetReadDeadline(longAgo)
	case !c.running:
		c.server.lot.Wake(c.conn)
	}
}

// finish closes the connection and calls OnClose. It is called once, by the goroutine that runs the function.
func (c *Conn) finish(err error) {
	s := c.server
	c.mu.Lock()
	c.ended, c.running = true, true
	if c.err == nil {
		c.err = err
	}
	err = c.err
	c.dropQueue()
	c.mu.Unlock()
	s.log.Guard(c.conn, c.conn.Close)
	if d := c.decoder; d != nil {
		c.decoder = nil
		d.reset()
		decoders.Put(d)
	}
	s.remove(c)
	defer s.done()
	if s.OnClose != nil {
		s.log.Guard(c.conn, func() error {
			s.OnClose(c, err)
			return nil
		})
	}
}

// Flush waits until everything that was written has been handed to the system, or the connection has ended. In a handler
// that writes more than MaxQueued it holds the handler back until the peer has read. It fails with ErrClosed if the
// connection has ended, and with the cause of ctx.
func (c *Conn) Flush(ctx context.Context) error {
	c.mu.Lock()
	ended := c.ended
	var empty chan struct{}
	if c.queue != nil {
		empty = c.queue.whenEmpty()
	}
	c.mu.Unlock()
	if empty != nil {
		select {
		case <-empty:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		c.mu.Lock()
		ended = c.ended
		c.mu.Unlock()
	}
	if ended {
		return ErrClosed
	}
	return nil
}
