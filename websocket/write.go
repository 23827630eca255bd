package websocket

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
)

// A frame is written at once if the system takes it. What it does not take is queued, in Conn.queue, and written
//
//   - by the connection's function, which runs when the connection can be written to, if it is parked;
//   - by a goroutine, if the function is running, because a handler may run for long. The goroutine ends when the queue is
//     empty.
//
// So a connection that is parked needs no goroutine to be written to, and no call waits for a peer. (A write through package
// tls cannot be interrupted. It is begun when the system has room for it. If it must wait nevertheless, because the system
// has run short of memory, WriteTimeout ends the connection.)

// A queue has the frames that a connection has not taken.
type queue struct {
	frames  [][]byte      // the first may be a part of one
	size    int           // bytes
	since   time.Duration // when the connection took something
	pongEnd int           // the bytes up to the end of a pong in frames, or 0 if there is none
	pong    []byte        // a pong for the time when the one in frames was written, or nil
	empty   chan struct{} // for Flush, or nil
}

// frameCost is what a frame in a queue costs besides its bytes: its slice, in an array of up to twice the length that is
// needed, and what its allocation is rounded up by.
const frameCost = 64

// cost returns the memory that q needs.
func (q *queue) cost() int { return q.size + len(q.frames)*frameCost }

// add appends a frame. The caller holds c.mu.
func (c *Conn) add(frame []byte) {
	q := c.queue
	q.frames = append(q.frames, frame)
	q.size += len(frame)
	c.server.queued.Add(int64(len(frame)))
}

func (q *queue) whenEmpty() chan struct{} {
	if q.empty == nil {
		q.empty = make(chan struct{})
	}
	return q.empty
}

// gather returns the first bytes of the queue, in a frame or in buf.
func (q *queue) gather(buf []byte) []byte {
	if len(q.frames) == 1 || len(q.frames[0]) >= len(buf) {
		return q.frames[0]
	}
	n := 0
	for _, f := range q.frames {
		if n += copy(buf[n:], f); n == len(buf) {
			break
		}
	}
	return buf[:n]
}

// advance removes n bytes that were written. The caller holds c.mu.
func (c *Conn) advance(n int) {
	q := c.queue
	if n == 0 || q == nil {
		return
	}
	q.size -= n
	q.since = c.server.now()
	c.server.queued.Add(int64(-n))
	if q.pongEnd = max(q.pongEnd-n, 0); q.pongEnd == 0 && q.pong != nil {
		c.add(q.pong)
		q.pong, q.pongEnd = nil, q.size
	}
	for n > 0 && n >= len(q.frames[0]) {
		n -= len(q.frames[0])
		q.frames[0] = nil
		q.frames = q.frames[1:]
	}
	if n > 0 {
		q.frames[0] = q.frames[0][n:]
	}
	if q.size == 0 {
		c.dropQueue()
	}
}

// dropQueue empties the queue. The caller holds c.mu.
func (c *Conn) dropQueue() {
	q := c.queue
	if q == nil {
		return
	}
	c.queue = nil
	c.server.queued.Add(int64(-q.size))
	if q.empty != nil {
		close(q.empty)
	}
}

// send writes or queues a frame. If retain is not set, the frame is copied if it is queued.
func (c *Conn) send(frame []byte, retain bool) error {
	c.mu.Lock()
	err := ErrClosed
	if !c.closing && !c.ended {
		err = c.enqueue(frame, retain, false)
	}
	if s := c.server; err == nil && s.IdleTimeout > 0 && frame[0]&opClose == 0 { // a message
		c.lastMessage = s.now()
	}
	c.mu.Unlock()
	switch {
	case err == nil, err == ErrClosed:
	case err != ErrQueueFull:
		err = c.writeFailed(err)
	case c.server.SlowPolicy == SlowDrop:
		c.server.dropped.Add(1)
	default:
		err = ErrSlow
		c.abort(err)
	}
	return err
}

// pong answers a ping. RFC 6455 (5.5.3) allows to answer only the latest of several. So at most two pongs are queued, however
// many pings a peer sends that does not read: one that is being written, and the latest. MaxQueued does not apply to them.
func (c *Conn) pong(payload []byte) {
	frame := append(appendHeader(nil, opPong, false, len(payload)), payload...)
	c.mu.Lock()
	var err error
	switch q := c.queue; {
	case c.closing || c.ended:
	case q != nil && q.pongEnd > 0:
		q.pong = frame
	default:
		if err = c.enqueue(frame, true, true); c.queue != nil {
			c.queue.pongEnd = c.queue.size
		}
	}
	c.mu.Unlock()
	if err != nil {
		c.writeFailed(err)
	}
}

// enqueue writes what the system takes of a frame, and queues the rest. If must is set, MaxQueued does not apply. The caller
// holds c.mu.
func (c *Conn) enqueue(frame []byte, retain, must bool) error {
	s, q := c.server, c.queue
	if q != nil && !must && uint64(q.cost()+len(frame)+frameCost) > s.maxQueued {
		return ErrQueueFull
	}
	if q == nil {
		n, err := c.tryWrite(frame)
		if err != nil || n == len(frame) {
			return err
		}
		frame = frame[n:]
	}
	if !retain {
		frame = bytes.Clone(frame)
	}
	if q != nil {
		c.add(frame)
		return nil
	}
	c.queue = &queue{since: s.now()}
	c.add(frame)
	if c.running || !c.socket.OK() {
		c.startWriting()
	} else {
		c.wake()
	}
	return nil
}

// wrappedChunk is the number of bytes that are written at once to a connection that wraps another. A socket that can be
// written to takes as many: Linux reports it when a third of its buffer is free.
const wrappedChunk = 16 << 10

// tryWrite writes what the system takes, which may be nothing. The caller holds c.mu.
func (c *Conn) tryWrite(b []byte) (n int, err error) {
	if c.writing || !c.socket.OK() {
		return 0, nil
	}
	if c.plain {
		return c.socket.Write(b)
	}
	for n < len(b) && err == nil && c.socket.Writable() {
		c.setWriteDeadline()
		var m int
		m, err = c.conn.Write(b[n:min(n+wrappedChunk, len(b))])
		n += m
	}
	return n, err
}

func (c *Conn) setWriteDeadline() {
	deadline := time.Time{}
	if d := c.server.writeTimeout(); d > 0 {
		deadline = time.Now().Add(d)
	}
	c.conn.SetWriteDeadline(deadline)
}

var writeBuffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// flush writes what the system takes of the queue, for the function.
func (c *Conn) flush() error {
	c.mu.Lock()
	var err error
	if c.queue != nil && !c.writing {
		buf := writeBuffers.Get().(*[16 << 10]byte)
		for c.queue != nil {
			b := c.queue.gather(buf[:])
			var n int
			n, err = c.tryWrite(b)
			if c.advance(n); n < len(b) {
				break
			}
		}
		writeBuffers.Put(buf)
		if c.queue != nil && err == nil && !c.socket.OK() {
			c.startWriting()
		}
	}
	c.mu.Unlock()
	if err != nil {
		err = c.writeFailed(err)
	}
	return err
}

// startWriting starts a goroutine that writes the queue. The caller holds c.mu.
func (c *Conn) startWriting() {
	if !c.writing {
		c.writing = true
		c.server.goroutines.Go(c.writeQueue)
	}
}

// writeQueue writes until the queue is empty.
func (c *Conn) writeQueue() {
	buf := writeBuffers.Get().(*[16 << 10]byte)
	defer writeBuffers.Put(buf)
	var err error
	for {
		c.mu.Lock()
		if c.queue == nil || err != nil {
			break
		}
		b := c.queue.gather(buf[:])
		c.mu.Unlock()
		c.setWriteDeadline()
		var n int
		err = c.server.log.Guard(c.conn, func() (err error) {
			n, err = c.conn.Write(b)
			return err
		})
		if n > 0 && c.plain && errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil // the peer is slow, but it reads
		}
		c.mu.Lock()
		c.advance(n)
		c.mu.Unlock()
	}
	c.writing = false
	c.conn.SetWriteDeadline(time.Time{})
	if c.closing {
		c.wake()
	}
	c.mu.Unlock()
	if err != nil {
		c.writeFailed(err)
	}
}

// writeFailed closes the connection because of an error of a write, and returns the error for OnClose.
func (c *Conn) writeFailed(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.abort(ErrSlow)
		return ErrSlow
	}
	err = fmt.Errorf("websocket: write: %w", err)
	c.abort(err)
	return err
}

// Write sends a message. What the system does not take at once is queued, up to Server.MaxQueued. The payload may be used
// again when Write has returned. Concurrent messages are sent one after the other.
//
// Write fails with ErrClosed after a close frame was sent or received, with ErrQueueFull or ErrSlow as SlowPolicy says, with
// socknotify.ErrInvalid if kind is unknown or a text is not UTF-8, and with the errors of the connection.
func (c *Conn) Write(kind Kind, payload []byte) error {
	if err := checkMessage(kind, payload); err != nil {
		return err
	}
	buf := frames.Get().(*[]byte)
	b, done := (*buf)[:0], false
	if c.compressed && len(payload) >= c.server.compressMin() {
		b, done = c.server.deflater.frame(b, kind, payload)
	}
	if !done {
		b = append(appendHeader(b, byte(kind), false, len(payload)), payload...)
	}
	err := c.send(b, false)
	if *buf = b; cap(b) > keepBuffer {
		*buf = nil
	}
	frames.Put(buf)
	return err
}

var frames = sync.Pool{New: func() any { return new([]byte) }}

func (s *Server) compressMin() int { return serving.Or(s.CompressMin, 512) }

// frame appends a compressed frame to b. It reports whether that is shorter than the message; if not, b is unchanged.
func (d *deflater) frame(b []byte, kind Kind, payload []byte) ([]byte, bool) {
	start := len(b)
	b = append(b, make([]byte, maxHeader)...) // the length of the header is not known yet
	from := len(b)
	b = d.deflate(b, payload)
	n := len(b) - from
	if n >= len(payload) {
		return b[:start], false
	}
	end := start + len(appendHeader(b[:start], byte(kind), true, n)) // at most from
	copy(b[end:], b[from:])
	return b[:end+n], true
}

func checkMessage(kind Kind, payload []byte) error {
	switch {
	case kind != Text && kind != Binary:
		return fmt.Errorf("websocket: write: %w: kind %d", socknotify.ErrInvalid, kind)
	case kind == Text && !utf8.Valid(payload):
		return fmt.Errorf("websocket: write: %w: text is not UTF-8", socknotify.ErrInvalid)
	}
	return nil
}

// Ping sends a ping frame with a payload of at most 125 bytes, whose answer Server.OnPong gets. Its errors are those of
// Write.
func (c *Conn) Ping(payload []byte) error {
	if len(payload) > maxControl {
		return fmt.Errorf("websocket: ping: %w: payload of %d bytes", socknotify.ErrInvalid, len(payload))
	}
	return c.send(append(appendHeader(nil, opPing, false, len(payload)), payload...), true)
}

var errInvalidClose = fmt.Errorf("websocket: close: %w: code or reason", socknotify.ErrInvalid)

// A Prepared is a message for many connections. Its frame is made once, and once more for the connections that compress.
// Queues share these frames. It may be used concurrently and any number of times, with connections of its Server.
type Prepared struct {
	kind    Kind
	server  *Server
	plain   []byte // a frame
	payload []byte // a part of plain

	once       sync.Once
	compressed []byte // a frame
}

// Prepare prepares a message. The payload may be used again when Prepare has returned. Prepare fails with
// socknotify.ErrInvalid as Conn.Write does.
func (s *Server) Prepare(kind Kind, payload []byte) (*Prepared, error) {
	if err := checkMessage(kind, payload); err != nil {
		return nil, err
	}
	b := appendHeader(make([]byte, 0, maxHeader+len(payload)), byte(kind), false, len(payload))
	n := len(b)
	b = append(b, payload...)
	return &Prepared{kind: kind, server: s, plain: b, payload: b[n:]}, nil
}

// frame returns the frame for a connection.
func (p *Prepared) frame(c *Conn) []byte {
	s := p.server
	if !c.compressed || len(p.payload) < s.compressMin() || s.deflater == nil {
		return p.plain
	}
	p.once.Do(func() {
		b, ok := s.deflater.frame(nil, p.kind, p.payload)
		if !ok {
			b = p.plain
		}
		p.compressed = bytes.Clone(b)
	})
	return p.compressed
}

// WritePrepared is Write with a prepared message.
func (c *Conn) WritePrepared(p *Prepared) error { return c.send(p.frame(c), true) }

// Broadcast sends a message to all connections, and returns the number of those that have taken it. It does not wait for
// any, needs no goroutine for any, and works for parked ones without unparking them. Connections that are opened while
// Broadcast runs may miss the message. Of two concurrent broadcasts some connections may get the one first, and some the
// other.
func (s *Server) Broadcast(p *Prepared) (sent int) {
	for _, c := range s.all() {
		if c.WritePrepared(p) == nil {
			sent++
		}
	}
	return sent
}
