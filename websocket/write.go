package websocket

import (
	"bytes"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
)

// sent notes that a message was written without error.
func (c *Conn) sent(err error) error {
	if s := c.server; err == nil && s.IdleTimeout > 0 {
		c.lastMessage.Store(int64(s.now()))
	}
	return err
}

// pong answers a ping. RFC 6455 (5.5.3) allows to answer only the latest of several. So at most two
// pongs are queued, however many pings a peer sends that does not read: one that is being written,
// and the latest. MaxQueued does not apply to them.
func (c *Conn) pong(payload []byte) {
	c.stream.WriteLatest(append(appendHeader(nil, opPong, false, len(payload)), payload...))
}

// Write sends a message. What the system does not take at once is queued, up to Server.MaxQueued.
// The payload may be used again when Write has returned. Concurrent messages are sent one after the
// other.
//
// Write fails with ErrClosed after a close frame was sent or received, with ErrQueueFull or ErrSlow
// as SlowPolicy says, with socknotify.ErrInvalid if kind is unknown or a text is not UTF-8, and
// with the errors of the connection.
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
	err := c.sent(c.stream.Write(b))
	if *buf = b; cap(b) > keepBuffer {
		*buf = nil
	}
	frames.Put(buf)
	return err
}

var frames = sync.Pool{New: func() any { return new([]byte) }}

func (s *Server) compressMin() int { return serving.Or(s.CompressMin, 512) }

// frame appends a compressed frame to b. It reports whether that is shorter than the message; if
// not, b is unchanged.
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

// Ping sends a ping frame with a payload of at most 125 bytes, whose answer Server.OnPong gets. Its
// errors are those of Write.
func (c *Conn) Ping(payload []byte) error {
	if len(payload) > maxControl {
		return fmt.Errorf("websocket: ping: %w: payload of %d bytes", socknotify.ErrInvalid, len(payload))
	}
	return c.stream.WriteShared(append(appendHeader(nil, opPing, false, len(payload)), payload...))
}

var errInvalidClose = fmt.Errorf("websocket: close: %w: code or reason", socknotify.ErrInvalid)

// A Prepared is a message for many connections. Its frame is made once, and once more for the
// connections that compress. Queues share these frames. It may be used concurrently and any number
// of times, with connections of its Server.
type Prepared struct {
	kind    Kind
	server  *Server
	plain   []byte // a frame
	payload []byte // a part of plain

	once       sync.Once
	compressed []byte // a frame
}

// Prepare prepares a message. The payload may be used again when Prepare has returned. Prepare
// fails with socknotify.ErrInvalid as Conn.Write does.
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
		p.compressed = p.plain
		if b, ok := s.deflater.frame(nil, p.kind, p.payload); ok {
			p.compressed = bytes.Clone(b) // b has room for more
		}
	})
	return p.compressed
}

// WritePrepared is Write with a prepared message.
func (c *Conn) WritePrepared(p *Prepared) error { return c.sent(c.stream.WriteShared(p.frame(c))) }

// Broadcast sends a message to all connections, and returns the number of those that have taken it.
// It does not wait for any, needs no goroutine for any, and works for parked ones without unparking
// them. Connections that are opened while Broadcast runs may miss the message. Of two concurrent
// broadcasts some connections may get the one first, and some the other.
func (s *Server) Broadcast(p *Prepared) (sent int) {
	for stream := range s.streams.All() {
		if stream.Value.(*Conn).WritePrepared(p) == nil {
			sent++
		}
	}
	return sent
}
