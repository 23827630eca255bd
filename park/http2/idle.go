package http2

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// minWait is the least time for which a connection is read that was parked.
const minWait = 5 * time.Millisecond

// resume begins to read.
func (c *conn) resume(b *input) {
	b.buf = append(b.buf, make([]byte, max(len(c.rest)-len(b.buf), 0))...)
	b.end = copy(b.buf, c.rest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = nil
	c.setReader(readerReads)
	c.linger(time.Now())
	if c.out != nil && !c.writing {
		c.startWriting()
	}
	c.settle()
}

// linger sets the read deadline of a connection on which nothing has arrived, or that is idle, since
// a moment: when it is to be parked, or to end if that may be earlier. The caller holds c.mu.
func (c *conn) linger(since time.Time) {
	now := time.Now()
	at, due := since.Add(c.server.linger()), c.due(now)
	if c.unparkable || !due.IsZero() && due.Before(at) {
		at = due
	}
	if soon := now.Add(minWait); !at.IsZero() && at.Before(soon) {
		at = soon
	}
	c.conn.SetReadDeadline(at)
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
	if c.opening > awaitSettings {
		idle = c.server.idleTimeout()
	}
	if len(c.streams) > 0 {
		from = now
	}
	if c.partSince != 0 && (len(c.streams) == 0 || c.headPart) {
		add(c.partSince.time(), c.server.readHeaderTimeout())
	}
	add(from, idle)
	if c.ending == endAfterFirst && c.last == 0 {
		add(from, serving.FirstRequestTime)
	}
	if at := c.pingDue(); !at.IsZero() && (due.IsZero() || at.Before(due)) &&
		!(c.ending == endGoingAway && len(c.streams) > 0) {
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
	if at := c.pingDue(); !at.IsZero() && !now.Before(at) && c.ending < endGoingAway {
		if c.pinged != 0 {
			c.mu.Unlock()
			return false, c.server.count("conn_close_lost_ping", errPing)
		}
		c.pinged = momentOf(now)
		c.buffer().b = append(wire.AppendFrame(c.buffer().b, http2.FramePing, 0, 0, 8), "parked\r\n"...)
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
	case c.ending == ended:
		err = c.err
	case c.ending == endGoingAway && c.idle():
		err = errGone
	case !due.IsZero() && !now.Before(due):
		err = errIdle
	case c.unparkable || now.Before(since.Add(c.server.linger())):
		c.linger(since)
	default:
		c.setReader(readerParked)
		c.rest, c.tlsState = bytes.Clone(b.buf[:b.end]), nil
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

// park parks the connection. The reader is parked.
func (c *conn) park(b *input, due time.Time) (parked bool, err error) {
	o := park.Options{IdleTimeout: -1}
	if !due.IsZero() {
		o.IdleTimeout = max(time.Until(due), 1)
	}
	lot := c.server.lot // it was set before the connection was served
	if err = lot.ParkWith(c.conn, o, c.function); err != nil {
		c.resume(b)
		if c.unparkable = errors.Is(err, park.ErrUnparkable); c.unparkable {
			err = nil
		}
		return false, err
	}
	// What has changed since the lock was released has found a function that was neither running nor
	// parked.
	c.mu.Lock()
	now, end := c.reader, c.ending
	c.mu.Unlock()
	switch {
	case end == ended:
		lot.CloseConn(c.conn)
	case now == readerCalled:
		lot.Wake(c.conn)
	}
	return true, nil
}
