package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// A conn is a connection. One goroutine reads it, in serve, unless it is parked, which it is when
// nothing has arrived for a while, also while streams are open. Handlers write to it, parked or not.
type conn struct {
	server   *Server
	conn     net.Conn // a *net.TCPConn, a *net.UnixConn or a *park.Conn
	ctx      context.Context
	handler  http.Handler
	function func(net.Conn)
	done     chan struct{} // closed when the connection has ended
	hooks    bool          // StateNew and StateClosed are announced
	hookMu   sync.Mutex    // held while the hook ConnState is called

	// The next fields are used by the goroutine that reads.
	rest     []byte // a part of a frame, while the connection is parked; changed with mu
	decoder  *hpack.Decoder
	block    *block // nil unless frames of a header block are to follow
	greeted  bool   // the preface was received
	stubborn bool   // the connection cannot be parked

	mu        sync.Mutex
	partSince moment // when the part of a frame or header block was begun that was received, or zero
	headPart  bool   // it is of a header block
	configed  bool   // the client's first SETTINGS frame was received
	acked     bool   // the client has acknowledged the server's SETTINGS frame
	tableZero bool   // the client knows that the encoder's table is empty; not used with an encoder
	parked    bool   // the function is parked, or is about to be
	look      bool   // the function must run as soon as it is parked
	writing   bool   // a goroutine writes
	goingAway bool   // a GOAWAY frame was sent or is queued
	lastCall  bool   // a GOAWAY frame follows the first request
	draining  bool   // nothing is sent after what is queued, and nothing received is handled
	ended     bool   // nothing is sent any more
	finished  bool   // the goroutine that reads has ended
	err       error
	idleSince moment    // when the last stream has ended and everything was written
	streams   []*stream // by their numbers, which grow
	running   int       // handlers
	suspended int       // requests that wait (see suspended.go)
	waiting   []*stream
	roomless  []*stream // they wait in send until fewer bytes are queued
	shut      []*stream // they wait in send for the client's window of the connection
	reset     [8]uint32 // streams that this side has reset latest, whose client may not know it yet
	resets    uint8
	last      uint32 // the highest stream of the client
	inflow    int32  // what the client may send
	unacked   int32  // what was received and read, and not returned to the client
	outflow   int64  // what the client can receive
	window    int64  // the window of a new stream of the client
	out       *outBuffer
	answers   int                  // bytes in out that answer frames
	taken     chan struct{}        // closed when out was taken, if the goroutine that reads waits for it
	received  moment               // of the latest frame
	pinged    moment               // of the PING that was sent since
	encoder   *encoder             // nil if there is no table for response headers
	tlsState  *tls.ConnectionState // nil until a stream needs it
	states    []http.ConnState     // for the hook ConnState, which was not called for them yet
}

// changed queues a state for the hook ConnState. The caller holds c.mu, and calls announce without it.
func (c *conn) changed(state http.ConnState) {
	if c.server.Server.ConnState != nil {
		c.states = append(c.states, state)
	}
}

// unlock releases c.mu, and then calls announce if a state is queued.
func (c *conn) unlock() {
	queued := len(c.states) > 0
	c.mu.Unlock()
	if queued {
		c.announce()
	}
}

// announce calls the hook ConnState with the states that are queued, in their order.
func (c *conn) announce() {
	c.hookMu.Lock()
	defer c.hookMu.Unlock()
	for c.announceNext() {
	}
}

// announceNext announces the first state in the queue, and reports whether there was one. A panic of the hook costs the
// connection, as in net/http.
func (c *conn) announceNext() bool {
	c.mu.Lock()
	if len(c.states) == 0 {
		c.mu.Unlock()
		return false
	}
	state := c.states[0]
	if c.states = c.states[1:]; len(c.states) == 0 {
		c.states = nil
	}
	c.mu.Unlock()
	netConn := c.conn
	if p, ok := netConn.(*park.Conn); ok {
		netConn = p.NetConn()
	}
	if c.try(func() { c.server.Server.ConnState(netConn, state) }) != nil && state != http.StateClosed {
		c.abort()
	}
	return true
}

// try calls f. It returns nil if f has returned. A panic is logged as net/http does, and returned.
func (c *conn) try(f func()) error {
	p := serving.Try(f)
	if p == nil {
		return nil
	}
	if p.Value != http.ErrAbortHandler {
		c.server.logf("http2: panic serving %v: %v\n%s", serving.Remote(c.conn), p.Value, p.Stack)
	}
	return p
}

func newConn(s *Server, ctx context.Context, netConn net.Conn, handler http.Handler) *conn {
	switch netConn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		netConn = park.Wrap(netConn)
	}
	c := &conn{server: s, conn: netConn, ctx: ctx, handler: handler, done: make(chan struct{}),
		idleSince: momentOf(time.Now()),
		inflow:    s.connWindow(), outflow: initialWindow, window: initialWindow}
	c.function = c.serve
	c.decoder = hpack.NewDecoder(max(s.tableSize(), initialTableSize), ignore)
	c.decoder.SetMaxStringLength(int(s.maxHeaderList()))
	if n := s.encoderTable(); n > 0 {
		c.encoder = newEncoder()
		c.encoder.hpack.SetMaxDynamicTableSizeLimit(n)
	}
	c.received = c.idleSince
	c.queueSettings()
	return c
}

// queueSettings queues the server's preface.
func (c *conn) queueSettings() {
	s, o := c.server, getOut()
	settings := []http2.Setting{
		{ID: http2.SettingMaxFrameSize, Val: uint32(s.readFrameSize())},
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(s.maxStreams())},
		{ID: http2.SettingMaxHeaderListSize, Val: s.maxHeaderList()},
		{ID: http2.SettingHeaderTableSize, Val: s.tableSize()},
		{ID: http2.SettingInitialWindowSize, Val: uint32(s.streamWindow())},
		{ID: http2.SettingEnableConnectProtocol, Val: 1},
	}
	if !s.ExtendedConnect {
		settings = settings[:len(settings)-1]
	}
	o.b = appendSettings(o.b, settings...)
	if n := c.inflow - initialWindow; n > 0 {
		o.b = appendWindowUpdate(o.b, 0, n)
	}
	c.out = o
}

var inBuffers = sync.Pool{New: func() any { return new([frameHeader + maxFrameSize]byte) }}

// minWait is the least time for which a connection is read that was parked.
const minWait = 5 * time.Millisecond

// serve is the connection's function.
func (c *conn) serve(net.Conn) {
	err := errClosed
	defer func() {
		if err != nil { // also after runtime.Goexit in a method of the connection
			c.finish(err)
		}
	}()
	if p := c.try(func() { err = c.read() }); p != nil {
		err = p
	}
}

// read reads, and handles what it has read, until the connection is idle and parked, or has ended. It returns nil if it
// has parked the connection.
func (c *conn) read() error {
	pooled := inBuffers.Get().(*[frameHeader + maxFrameSize]byte)
	defer inBuffers.Put(pooled)
	b := input{buf: pooled[:], pooled: pooled[:]}
	c.resume(&b)
	defer b.shrink()
	var readErr error
	for begun := false; ; begun = true {
		full := false
		if begun || b.end == 0 { // otherwise what was received before is handled first
			space := b.free()
			var n int
			n, readErr = c.conn.Read(space)
			b.end += n
			b.moved = b.moved || n > 0
			full = n == len(space)
		}
		if b.end > 0 {
			if err := c.consume(&b); err != nil {
				c.drain(err, pooled[:])
				return err
			}
		}
		if full && b.bulk {
			b.grow()
		}
		if b.bulk {
			runtime.Gosched() // the handler reads the body while it is in the caches
		}
		switch {
		case readErr == nil:
		case !isTimeout(readErr):
			return readErr
		default:
			parked, err := false, c.shorten(&b)
			if err == nil {
				parked, err = c.timedOut(&b)
			}
			if parked {
				return nil
			}
			if err != nil {
				c.drain(err, pooled[:])
				return err
			}
		}
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// An input is what was received and not handled: buf[:end].
type input struct {
	buf    []byte
	end    int
	pooled []byte
	bulk   bool // large DATA frames have arrived
	moved  bool // something has arrived since the read deadline was set
}

var largeInBuffers = sync.Pool{New: func() any { return new([largeIn]byte) }}

// largeIn is the size of the buffer for frames that do not fit into the small one: for a large body, a client needs less of
// the server's CPU time with frames of this size than with smaller ones. A connection that fills the small buffer with DATA
// frames of at least bulkFrame bytes has it too, so that one Read receives several of them. Of small frames the small buffer
// has enough.
const (
	largeIn   = 64 << 10
	bulkFrame = 4 << 10
)

// grow makes b have a large buffer, if what b holds fits into it.
func (b *input) grow() {
	if len(b.pooled) < largeIn && b.end < largeIn {
		large := largeInBuffers.Get().(*[largeIn]byte)
		copy(large[:], b.buf[:b.end])
		b.buf, b.pooled = large[:], large[:]
	}
}

// shrink gives a large buffer back. b must not be used after it.
func (b *input) shrink() {
	if len(b.pooled) == largeIn {
		largeInBuffers.Put((*[largeIn]byte)(b.pooled))
	}
}

// free returns the space for the next Read, which is not empty. A frame needs more than a large buffer has only if
// MaxReadFrameSize is larger.
func (b *input) free() []byte {
	if b.end == len(b.buf) {
		b.grow()
	}
	if b.end == len(b.buf) {
		b.buf = append(b.buf, make([]byte, len(b.buf))...)
	}
	return b.buf[b.end:]
}

// consumed removes the first n bytes.
func (b *input) consumed(n int) {
	if b.end -= n; n > 0 && b.end <= len(b.pooled) {
		copy(b.pooled, b.buf[n:n+b.end])
		b.buf = b.pooled
	} else {
		copy(b.buf, b.buf[n:n+b.end])
	}
}

// resume begins to read.
func (c *conn) resume(b *input) {
	b.buf = append(b.buf, make([]byte, max(len(c.rest)-len(b.buf), 0))...)
	b.end = copy(b.buf, c.rest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest, c.parked, c.look = nil, false, false
	c.linger(time.Now())
	if c.out != nil && !c.writing {
		c.startWriting()
	}
	c.settle()
}

// idle reports whether nothing is under way. The caller holds c.mu.
func (c *conn) idle() bool { return len(c.streams) == 0 && c.out == nil && !c.writing }

// settle is called when a stream has ended, and when everything was written. If the connection is
// to end, the goroutine that reads ends it. The caller holds c.mu.
func (c *conn) settle() {
	if c.ended || c.goingAway && c.idle() {
		c.interrupt()
	}
}

// interrupt makes the goroutine that reads look at what has changed. The caller holds c.mu.
//
// A moment at which the connection ends is not such a change: the reader waits for no longer than
// until the earliest moment that was possible when it began to wait (see due).
func (c *conn) interrupt() {
	switch {
	case c.draining:
	case c.parked:
		c.look = true
		go c.server.lot.Wake(c.conn) // package park may wait for a Read of its own
	default:
		c.conn.SetReadDeadline(longAgo)
	}
}

// linger sets the read deadline of a connection on which nothing has arrived, or that is idle, since
// a moment: when it is to be parked, or to end if that may be earlier. The caller holds c.mu.
func (c *conn) linger(since time.Time) {
	now := time.Now()
	at, due := since.Add(c.server.linger()), c.due(now)
	if c.stubborn || !due.IsZero() && due.Before(at) {
		at = due
	}
	if soon := now.Add(minWait); !at.IsZero() && at.Before(soon) {
		at = soon
	}
	c.conn.SetReadDeadline(at)
}

var longAgo = time.Unix(1, 0)

// A moment is a time in 8 bytes instead of 24: what has passed since began. 0 is the zero time.
type moment time.Duration

var began = time.Now().Add(-1)

func momentOf(t time.Time) moment { return moment(t.Sub(began)) }
func (m moment) time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return began.Add(time.Duration(m))
}

// due returns when the connection ends if nothing changes, or when a PING is due, or the zero time.
// A connection with streams does not end, unless its client leaves a header block incomplete, so
// that no other frame can follow. For it due returns the earliest moment at which it could end if
// the streams ended now. The caller holds c.mu.
func (c *conn) due(now time.Time) (due time.Time) {
	add := func(from time.Time, d time.Duration) {
		if at := from.Add(d); d > 0 && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	idle, from := prefaceTimeout, c.idleSince.time()
	if c.configed {
		idle = c.server.idleTimeout()
	}
	if len(c.streams) > 0 {
		from = now
	}
	if c.partSince != 0 && (len(c.streams) == 0 || c.headPart) {
		add(c.partSince.time(), c.server.readHeaderTimeout())
	}
	add(from, idle)
	if c.lastCall && c.last == 0 {
		add(from, serving.FirstRequestTime)
	}
	if at := c.pingDue(); !at.IsZero() && (due.IsZero() || at.Before(due)) &&
		!(c.goingAway && len(c.streams) > 0) {
		due = at
	}
	return due
}

// pingDue returns when a PING is to be sent, or should have been answered. It is the zero time without SendPingTimeout. The
// caller holds c.mu, or is the goroutine that reads.
func (c *conn) pingDue() time.Time {
	switch d := c.server.config().SendPingTimeout; {
	case d <= 0:
		return time.Time{}
	case c.pinged != 0:
		return c.pinged.time().Add(c.server.pingTimeout())
	default:
		return c.received.time().Add(d)
	}
}

// timedOut is called when the read deadline has passed. It reports whether it has parked the connection. With an error the
// connection is to end; otherwise it is read on.
func (c *conn) timedOut(b *input) (parked bool, err error) {
	c.mu.Lock()
	now := time.Now()
	if at := c.pingDue(); !at.IsZero() && !now.Before(at) && !c.ended && !c.goingAway {
		if c.pinged != 0 {
			c.mu.Unlock()
			return false, c.server.count("conn_close_lost_ping", errPing)
		}
		c.pinged = momentOf(now)
		c.buffer().b = append(appendFrame(c.buffer().b, http2.FramePing, 0, 0, 8), "parked\r\n"...)
		c.startWriting()
	}
	due, since := c.due(now), c.idleSince.time()
	if len(c.streams) > 0 {
		since = time.Time{}
		if b.moved {
			since = now
		}
	}
	b.moved = false
	switch {
	case c.ended:
		err = c.err
	case c.goingAway && c.idle():
		err = errGone
	case !due.IsZero() && !now.Before(due):
		err = errIdle
	case c.stubborn || now.Before(since.Add(c.server.linger())):
		c.linger(since)
	default:
		c.rest, c.parked, c.tlsState = bytes.Clone(b.buf[:b.end]), true, nil
		if len(c.streams) == 0 {
			c.streams, c.waiting = nil, nil
		}
		if len(c.roomless)+len(c.shut) == 0 {
			c.roomless, c.shut = nil, nil
		}
		c.mu.Unlock()
		c.announce() // a handler that has ended its stream announces that when it returns, which may be later
		return c.park(b, due)
	}
	c.mu.Unlock()
	return false, err
}

// park parks the connection. c.parked is set.
func (c *conn) park(b *input, due time.Time) (parked bool, err error) {
	o := park.Options{IdleTimeout: -1}
	if !due.IsZero() {
		o.IdleTimeout = max(time.Until(due), 1)
	}
	lot := c.server.lot // it was set before the connection was served
	if err = lot.ParkWith(c.conn, o, c.function); err != nil {
		c.resume(b)
		if c.stubborn = errors.Is(err, park.ErrUnparkable); c.stubborn {
			err = nil
		}
		return false, err
	}
	// What has changed since the lock was released has found a function that was neither running nor
	// parked.
	c.mu.Lock()
	look, ended := c.look, c.ended
	c.mu.Unlock()
	switch {
	case ended:
		lot.CloseConn(c.conn)
	case look:
		lot.Wake(c.conn)
	}
	return true, nil
}

// goAway begins the end of the connection, for Shutdown and for a response with "Connection: close". With ifIdle it does
// nothing while there are streams. A new connection ends after its first request, or when the time for that is over.
func (c *conn) goAway(ifIdle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.goingAway, c.ended, ifIdle && len(c.streams) > 0:
	case c.last == 0 && time.Since(c.idleSince.time()) < serving.FirstRequestTime:
		c.lastCall = true
		c.interrupt() // the connection is due earlier now
	default:
		c.queueGoAway(http2.ErrCodeNo)
		c.startWriting() // and then settle ends it, if it has no streams
	}
}

// queueGoAway queues a GOAWAY frame. The caller holds c.mu.
func (c *conn) queueGoAway(code http2.ErrCode) {
	c.goingAway = true
	c.buffer().b = appendGoAway(c.buffer().b, c.last, code)
}

// abort ends the connection at once.
func (c *conn) abort() {
	c.mu.Lock()
	c.fail(errClosed)
	c.mu.Unlock()
	c.server.lot.CloseConn(c.conn)
}

// fail ends everything that is under way. The caller holds c.mu.
func (c *conn) fail(err error) {
	if c.ended {
		return
	}
	c.ended = true
	if c.err == nil {
		c.err = err
	}
	c.endStreams(err)
	if o := c.takeOut(); o != nil {
		o.release()
	}
	c.settle()
}

// endStreams ends all streams. The caller holds c.mu.
func (c *conn) endStreams(err error) {
	for len(c.streams) > 0 {
		c.streams[len(c.streams)-1].close(err)
	}
	c.waiting = nil
}

// drain ends the connection with a GOAWAY frame. It gives the client time to receive it: a connection that is closed while
// there is something to read is reset, and what was sent before may be lost.
func (c *conn) drain(err error, buf []byte) {
	c.block = nil // it may have many fields
	c.mu.Lock()
	if !c.ended {
		code := http2.ErrCodeNo
		var ce http2.ConnectionError
		if errors.As(err, &ce) {
			code = http2.ErrCode(ce)
		}
		c.endStreams(err)
		if !c.goingAway || code != http2.ErrCodeNo {
			c.queueGoAway(code)
		}
		c.draining = true
		if c.out != nil {
			c.startWriting()
		} else if !c.writing {
			c.closeWrite()
		}
	}
	draining := c.draining
	c.mu.Unlock()
	if !draining {
		return
	}
	c.conn.SetDeadline(time.Now().Add(drainTimeout))
	for {
		if _, err := c.conn.Read(buf); err != nil {
			return
		}
	}
}

// closeWrite tells the client that nothing follows. The caller holds c.mu.
func (c *conn) closeWrite() {
	if w, ok := c.conn.(interface{ CloseWrite() error }); ok {
		go w.CloseWrite() // package tls may wait for the client
	}
}

// finish ends the connection. It is called once, by the goroutine that reads.
func (c *conn) finish(err error) {
	if err == io.EOF {
		err = errClosed
	}
	c.mu.Lock()
	c.fail(err)
	c.mu.Unlock()
	c.conn.Close()
	if c.hooks {
		c.mu.Lock()
		c.changed(http.StateClosed)
		c.mu.Unlock()
	}
	c.announce()
	c.mu.Lock()
	c.finished = true
	over := c.over()
	c.mu.Unlock()
	close(c.done)
	if over {
		c.server.remove(c)
	}
}
