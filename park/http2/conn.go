package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// A conn is a connection. One goroutine reads it, in serve, unless it is parked, which it is when
// nothing has arrived for a while, also while streams are open. Handlers write to it, parked or not.
type conn struct {
	server   *Server
	conn     net.Conn // a *net.TCPConn, a *net.UnixConn or a *park.Conn
	ctx      context.Context
	handler  http.Handler
	function func(net.Conn) // serve
	done     chan struct{}  // closed when the connection has ended
	hooks    bool           // StateNew and StateClosed are announced
	hookMu   sync.Mutex     // held while the hook ConnState is called

	// The next fields are used by the goroutine that reads.
	unparkable bool
	rest       []byte // a part of a frame, while the connection is parked; changed with mu
	decoder    wire.Decoder

	mu      sync.Mutex
	opening opening // the goroutine that reads changes it, and may read it without mu
	reader  reader
	ending  ending
	err     error // why it has ended

	// What the client has sent in part, and since when nothing has happened (see idle.go).
	partSince moment // when the part of a frame or header block was begun that was received, or zero
	headPart  bool   // it is of a header block
	idleSince moment // when the last stream has ended and everything was written
	received  moment // of the latest frame
	pinged    moment // of the PING that was sent since
	asks      asks   // of the client, for answers that move nothing (see asks.go)

	// The streams (see stream.go), and those that the client may still believe to be open (see reset.go).
	streams []*stream // by their numbers, which grow
	last    uint32    // the highest stream of the client
	reset   [8]uint32 // those that this side has reset latest
	resets  uint8

	// The requests that are answered (see handler.go and suspend.go).
	running   int       // handlers
	suspended int       // requests that wait without a handler
	waiting   []*stream // their handlers begin when others have returned

	// The windows of the connection, and the first one of its streams (see window.go).
	inflow  flow.Receive
	outflow flow.Send
	initial int32 // SETTINGS_INITIAL_WINDOW_SIZE of the client

	// What is queued, and who writes it (see write.go).
	out      *outBuffer
	writing  bool          // a goroutine writes
	answers  int           // bytes in out that answer frames
	taken    chan struct{} // closed when out was taken, if the goroutine that reads waits for it
	roomless []*stream     // they wait until fewer bytes are queued
	shut     []*stream     // they wait for the client's window of the connection
	encoder  wire.Encoder

	tlsState *tls.ConnectionState // nil until a stream needs it
	states   []http.ConnState     // for the hook ConnState, which was not called for them yet
}

// The three states of a connection are protected by conn.mu.

// An opening says what the client must send first. Its values follow each other.
type opening uint8

const (
	awaitPreface  opening = iota
	awaitSettings         // its first frame must be SETTINGS
	awaitAck              // it may not know the server's settings
	opened                // it has acknowledged them
)

// A reader is what the goroutine that reads is doing.
type reader uint8

const (
	readerReads  reader = iota
	readerParked        // there is no goroutine, or it is about to end: the function is parked, or about to be
	readerCalled        // parked, and the lot was asked to call the function at once
	readerDrains        // nothing is sent after what is queued, and nothing received is handled
	readerGone          // it has ended
)

// An ending is how far the end of a connection is.
type ending uint8

const (
	endNot        ending = iota
	endAfterFirst        // Shutdown has found a new connection: a GOAWAY frame follows the first request
	endGoingAway         // a GOAWAY frame was sent or is queued; the connection ends when it is idle
	ended                // nothing is sent any more, and no stream is open
)

// readerMoves has the states that may follow a state of the reader:
//
//	reads   parked  timedOut: nothing has arrived for long enough
//	        drains  drain: the connection ends with a GOAWAY frame
//	        gone    finish: the connection cannot be read, or has ended
//	parked  reads   resume: something has arrived, the connection is due, or it could not be parked
//	        called  interrupt: the function is to run although nothing has arrived
//	called  reads   resume
//	drains  gone    finish
//
// The function reads when it begins. An interrupt may come again, before it has begun. A connection
// of the program that panics while it is parked goes from parked or called to gone.
var readerMoves = [...]uint8{
	readerReads:  1<<readerReads | 1<<readerParked | 1<<readerDrains | 1<<readerGone,
	readerParked: 1<<readerReads | 1<<readerCalled | 1<<readerGone,
	readerCalled: 1<<readerReads | 1<<readerCalled | 1<<readerGone,
	readerDrains: 1 << readerGone,
	readerGone:   0,
}

// readerEnds has the endings that a connection may have while the reader is in a state, when no
// goroutine holds the lock:
//
//	        not  after first  going away  ended
//	reads   yes  yes          yes         yes    until the deadline that interrupt sets
//	parked  yes  yes          yes         no     what ends it calls the function
//	called  yes  yes          yes         yes
//	drains  no   no           yes         yes    a write has failed
//	gone    no   no           no          yes
var readerEnds = [...]uint8{
	readerReads:  1<<endNot | 1<<endAfterFirst | 1<<endGoingAway | 1<<ended,
	readerParked: 1<<endNot | 1<<endAfterFirst | 1<<endGoingAway,
	readerCalled: 1<<endNot | 1<<endAfterFirst | 1<<endGoingAway | 1<<ended,
	readerDrains: 1<<endGoingAway | 1<<ended,
	readerGone:   1 << ended,
}

// setReader changes the state of the reader. The caller holds c.mu.
func (c *conn) setReader(to reader) {
	if readerMoves[c.reader]&(1<<to) == 0 {
		panic(fmt.Sprintf("http2: reader %d becomes %d", c.reader, to))
	}
	c.reader = to
}

// setEnding changes the ending, which never goes back. The caller holds c.mu.
func (c *conn) setEnding(to ending) {
	if to < c.ending || c.ending == ended {
		panic(fmt.Sprintf("http2: ending %d becomes %d", c.ending, to))
	}
	c.ending = to
}

// setOpening changes the opening, which goes from one value to the next. The caller holds c.mu.
func (c *conn) setOpening(to opening) {
	if to != c.opening+1 {
		panic(fmt.Sprintf("http2: opening %d becomes %d", c.opening, to))
	}
	c.opening = to
}

// idle reports whether nothing is under way. The caller holds c.mu.
func (c *conn) idle() bool { return len(c.streams) == 0 && c.out == nil && !c.writing }

// settle is called when a stream has ended, and when everything was written. If the connection is
// to end, the goroutine that reads ends it. The caller holds c.mu.
func (c *conn) settle() {
	if c.ending == ended || c.ending == endGoingAway && c.idle() {
		c.interrupt()
	}
}

// interrupt makes the goroutine that reads look at what has changed. The caller holds c.mu.
//
// A moment at which the connection ends is not such a change: the reader waits for no longer than
// until the earliest moment that was possible when it began to wait (see due).
func (c *conn) interrupt() {
	switch c.reader {
	case readerReads:
		c.conn.SetReadDeadline(longAgo)
	case readerParked, readerCalled:
		c.setReader(readerCalled)
		go c.server.lot.Wake(c.conn) // package park may wait for a Read of its own
	}
}

var longAgo = time.Unix(1, 0)

// isTimeout reports whether an error is that of a deadline.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

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
