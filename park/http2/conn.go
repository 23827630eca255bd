package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/socknotify/socknotify/park"
)

// A conn is a connection. One goroutine reads it, in serve, unless it is parked. Handlers write to it.
type conn struct {
	server   *Server
	conn     net.Conn // a *net.TCPConn, a *net.UnixConn or a *park.Conn
	ctx      context.Context
	handler  http.Handler
	function func(net.Conn)
	done     chan struct{} // closed when the connection has ended

	// The next fields are used by the goroutine that reads.
	rest      []byte // a part of a unit, while the connection is parked
	measured  int    // where measure has come to in the unit
	partSince time.Time
	decoder   *hpack.Decoder
	greeted   bool // the preface was received
	stubborn  bool // the connection cannot be parked

	mu        sync.Mutex
	configed  bool // the client's first SETTINGS frame was received
	acked     bool // the client has acknowledged the server's SETTINGS frame
	tableZero bool // the client knows that the encoder's table is empty
	parked    bool // the function is parked, or is about to be
	unbound   bool // the goroutine that reads has no deadline
	writing   bool // a goroutine writes
	goingAway bool // a GOAWAY frame was sent or is queued
	draining  bool // nothing is sent after what is queued, and nothing received is handled
	ended     bool // nothing is sent any more
	finished  bool // the goroutine that reads has ended
	err       error
	idleSince time.Time // when the last stream has ended and everything was written
	streams   map[uint32]*stream
	last      uint32 // the highest stream of the client
	running   int    // handlers
	waiting   []*stream
	reset     [8]uint32 // streams that this side has reset latest, whose client may not know it yet
	resets    uint8
	inflow    int32 // what the client may send
	unacked   int32 // what was received and read, and not returned to the client
	outflow   int64 // what the client can receive
	window    int64 // the window of a new stream of the client
	out       *outBuffer
	tlsState  *tls.ConnectionState // nil until a stream needs it
}

func newConn(s *Server, ctx context.Context, netConn net.Conn, handler http.Handler) *conn {
	switch netConn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		netConn = park.Wrap(netConn)
	}
	c := &conn{server: s, conn: netConn, ctx: ctx, handler: handler, done: make(chan struct{}), idleSince: time.Now(),
		inflow: s.connWindow(), outflow: initialWindow, window: initialWindow}
	c.function = c.serve
	c.decoder = hpack.NewDecoder(max(s.tableSize(), initialTableSize), nil)
	c.queueSettings()
	return c
}

// queueSettings queues the server's preface.
func (c *conn) queueSettings() {
	s, o := c.server, getOut()
	o.b = appendSettings(o.b,
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: maxFrameSize},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(s.maxStreams())},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: s.maxHeaderList()},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: s.tableSize()},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(s.streamWindow())})
	if n := c.inflow - initialWindow; n > 0 {
		o.b = appendWindowUpdate(o.b, 0, n)
	}
	c.out = o
}

var inBuffers = sync.Pool{New: func() any { return new([frameHeader + maxFrameSize]byte) }}

// minWait is the least time for which a connection is read that was parked.
const minWait = 5 * time.Millisecond

// serve is the connection's function. It reads, and handles what it has read, until the connection is idle and parked, or
// has ended.
func (c *conn) serve(net.Conn) {
	pooled := inBuffers.Get().(*[frameHeader + maxFrameSize]byte)
	defer inBuffers.Put(pooled)
	b := input{buf: pooled[:], pooled: pooled[:]}
	err := errClosed
	defer func() {
		if err != nil { // also after runtime.Goexit in a method of the connection
			c.finish(err)
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("http2: panic: %v", p)
			buf := make([]byte, 64<<10)
			c.server.logf("http2: panic serving %v: %v\n%s", c.conn.RemoteAddr(), p, buf[:runtime.Stack(buf, false)])
		}
	}()
	c.resume(&b)
	for {
		n, readErr := c.conn.Read(b.free())
		b.end += n
		if n > 0 {
			if e := c.consume(&b); e != nil {
				c.drain(e, pooled[:])
				err = e
				return
			}
		}
		switch {
		case readErr == nil:
		case !isTimeout(readErr):
			err = readErr
			return
		default:
			parked, e := c.timedOut(&b)
			if parked {
				err = nil
				return
			}
			if e != nil {
				c.drain(e, pooled[:])
				err = e
				return
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
}

// free returns the space for the next Read, which is not empty. Only a header block needs more than a pooled buffer has.
func (b *input) free() []byte {
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
	c.rest = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	wait := max(c.server.linger(), minWait)
	if due := c.due(); !due.IsZero() && !now.Before(due) {
		wait = minWait // the lot has called the function because of that
	}
	c.parked, c.unbound = false, false
	c.conn.SetReadDeadline(now.Add(wait))
	if c.out != nil && !c.writing {
		c.startWriting()
	}
	c.settle()
}

// idle reports whether nothing is under way. The caller holds c.mu.
func (c *conn) idle() bool { return len(c.streams) == 0 && c.out == nil && !c.writing }

// settle is called when a stream has ended, and when everything was written. If nothing is under way, the goroutine that
// reads gets a deadline. The caller holds c.mu.
func (c *conn) settle() {
	switch {
	case c.parked || c.draining || !c.ended && !c.idle():
	case c.goingAway || c.ended:
		c.unbound = false
		c.conn.SetReadDeadline(longAgo)
	case c.unbound:
		c.unbound = false
		c.conn.SetReadDeadline(time.Now().Add(max(c.server.linger(), minWait)))
	}
}

var longAgo = time.Unix(1, 0)

// due returns when an idle connection ends, or the zero time. The caller holds c.mu, or is the goroutine that reads.
func (c *conn) due() (due time.Time) {
	add := func(from time.Time, d time.Duration) {
		if at := from.Add(d); d > 0 && !from.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	if c.greeted {
		add(c.idleSince, c.server.idleTimeout())
	} else {
		add(c.idleSince, prefaceTimeout)
	}
	add(c.partSince, c.server.readHeaderTimeout())
	return due
}

// timedOut is called when the read deadline has passed. It reports whether it has parked the connection. With an error the
// connection is to end; otherwise it is read on.
func (c *conn) timedOut(b *input) (parked bool, err error) {
	c.mu.Lock()
	now, due := time.Now(), c.due()
	linger := c.idleSince.Add(c.server.linger())
	switch {
	case c.ended:
		err = c.err
	case !c.idle():
		c.unbound = true
		c.conn.SetReadDeadline(time.Time{})
	case c.goingAway:
		err = errGone
	case !due.IsZero() && !now.Before(due):
		err = errIdle
	case c.stubborn:
		c.conn.SetReadDeadline(due)
	case now.Before(linger):
		c.conn.SetReadDeadline(linger)
	default:
		c.parked, c.streams, c.waiting, c.tlsState = true, nil, nil, nil
		c.mu.Unlock()
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
	if b.end > 0 {
		c.rest = append([]byte(nil), b.buf[:b.end]...)
	}
	lot := c.server.lot // it was set before the connection was served
	if err = lot.ParkWith(c.conn, o, c.function); err != nil {
		c.resume(b)
		if c.stubborn = errors.Is(err, park.ErrUnparkable); c.stubborn {
			err = nil
		}
		return false, err
	}
	// What has changed since the lock was released was for a function that was neither running nor parked.
	c.mu.Lock()
	goingAway, ended := c.goingAway, c.ended
	c.mu.Unlock()
	switch {
	case ended:
		lot.CloseConn(c.conn)
	case goingAway:
		lot.Wake(c.conn)
	}
	return true, nil
}

// goAway begins the end of the connection, for Shutdown and for a response with "Connection: close".
func (c *conn) goAway() {
	c.mu.Lock()
	if c.goingAway || c.ended {
		c.mu.Unlock()
		return
	}
	c.queueGoAway(http2.ErrCodeNo)
	parked := c.parked
	if !parked {
		c.startWriting()
	}
	c.mu.Unlock()
	if parked {
		c.server.lot.Wake(c.conn)
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
	c.dropOut()
	c.settle()
}

// endStreams ends all streams. The caller holds c.mu.
func (c *conn) endStreams(err error) {
	for _, st := range c.streams {
		st.close(err)
	}
	c.waiting = nil
}

// drain ends the connection with a GOAWAY frame. It gives the client time to receive it: a connection that is closed while
// there is something to read is reset, and what was sent before may be lost.
func (c *conn) drain(err error, buf []byte) {
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
	c.mu.Lock()
	c.finished = true
	over := c.running == 0
	c.mu.Unlock()
	close(c.done)
	if over {
		c.server.remove(c)
	}
}
