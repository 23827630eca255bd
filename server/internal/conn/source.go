package conn

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// maxTurn bounds the bytes that sources send before other connections are served.
const maxTurn = 1 << 20

func (c *Conn) Stream(r io.Reader) error {
	if r == nil {
		return engine.Invalid("reader is nil")
	}
	return c.addSource(&source{r: r})
}

func (c *Conn) SendFile(f *os.File, off, n int64) error {
	if f == nil {
		return engine.Invalid("file is nil")
	}
	src := &source{f: f, off: off, left: n}
	if off < 0 {
		src.close()
		return engine.Invalid("offset must not be negative, got %d", off)
	}
	if n < 0 {
		st, err := f.Stat()
		if err != nil {
			src.close()
			return err
		}
		src.left = max(st.Size()-off, 0)
	}
	return c.addSource(src)
}

// addSource appends a source, or closes it and returns an error.
func (c *Conn) addSource(src *source) error {
	c.mu.Lock()
	err := c.mayAddSource()
	if err == nil {
		c.appendSource(src)
	}
	c.mu.Unlock()
	if err != nil {
		src.close()
	}
	return err
}

func (c *Conn) mayAddSource() error {
	if c.wrapped && c.tls() == nil {
		return fmt.Errorf("server: Stream: %w", errors.ErrUnsupported)
	}
	if err := c.mayWrite(); err != nil {
		return err
	}
	if c.sendHeld(); c.word.Load()&wOver != 0 {
		return c.sendable()
	}
	if c.queuedBytes() >= c.shared().MaxQueued {
		return c.queueFull()
	}
	return nil
}

// appendSource appends a source. The lock is held.
func (c *Conn) appendSource(src *source) {
	q := &c.ensureExtra().out
	last := &q.source
	for *last != nil {
		last = &(*last).next
	}
	*last = src
	if was := c.set(wOut | wFull); was&wOut == 0 {
		c.beginOut(q)
	}
}

// feed sends from the sources in their order, until the system takes no more, a reader has nothing,
// or maxTurn bytes were sent. The caller owns the connection. It holds no lock, because readers and
// files may block.
func (c *Conn) feed() {
	var buf *buffer
	defer func() { c.shared().buffers.put(buf) }()
	for turn := 0; turn < maxTurn; {
		src := c.firstSource()
		if src == nil {
			return
		}
		n, more := c.sendSource(src, &buf, maxTurn-turn)
		if !more {
			return
		}
		turn += max(n, 1)
	}
}

// firstSource returns the source to send from, or nil if there is none or bytes are queued before
// it.
func (c *Conn) firstSource() *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.feeds() {
		return nil
	}
	q := &c.extra.out
	c.drain(q)
	if q.left() > 0 || !c.feeds() {
		return nil
	}
	q.since = c.shared().Wheel.Now() // there is room
	if q.source.r != nil {
		c.word.Or(wNoOut) // unless WantWritable is called from here on, or the reader has something
	}
	return q.source
}

// sendSource sends a piece of at most most bytes, and reports whether to go on.
func (c *Conn) sendSource(src *source, buf **buffer, most int) (n int, more bool) {
	switch {
	case src.f != nil && !c.wrapped && src.left > 0:
		most = int(min(src.left, int64(most)))
		if c.rated {
			c.mu.Lock()
			most = c.allow(&c.extra.rates.out, most)
			c.mu.Unlock()
		}
		if most == 0 {
			return 0, false
		}
		n, err := c.Socket().SendFile(src.f, src.off, most)
		c.shared().traffic.sent(n)
		src.off += int64(n)
		src.left -= int64(n)
		if n > 0 {
			c.mu.Lock()
			c.took()
			if c.rated {
				c.extra.rates.out.took(n)
			}
			c.mu.Unlock()
		}
		return n, c.sourceSent(src, src.left == 0, err)
	case src.r == nil && src.f == nil:
		b := c.takeBehind(src)
		return len(b), c.sendPiece(b) && c.sourceSent(src, true, nil)
	}
	s := c.shared()
	if *buf == nil {
		*buf = s.buffers.get(s.BufferSize)
	}
	b := (*buf).b[:min(len((*buf).b), s.BufferSize)]
	if s.MaxQueuedTotal > 0 && s.Counts.Queued.Load()+int64(len(b)) > s.MaxQueuedTotal {
		b = b[:min(len(b), maxHeld)] // as with Write, a small piece is not refused
	}
	n, err := src.read(b)
	if err != sock.ErrWouldBlock || n > 0 {
		c.word.And(^uint32(wNoOut))
	}
	if n > 0 && !c.sendPiece(b[:n]) {
		return n, false
	}
	if n > 0 && err == sock.ErrWouldBlock {
		err = nil // it is asked again
	}
	return n, c.sourceSent(src, err == io.EOF, err)
}

// sourceSent acts on the end of a source or on its error, and reports whether to go on.
func (c *Conn) sourceSent(src *source, all bool, err error) bool {
	switch {
	case err == sock.ErrWouldBlock:
		return false
	case err == io.EOF && src.f != nil && src.left > 0:
		err = io.ErrUnexpectedEOF // it has become shorter
	case err == io.EOF:
		err = nil
	}
	c.mu.Lock()
	q := &c.extra.out
	// While it is the last source, the close_notify comes here.
	for err == nil && all && q.notify && src.next == nil && len(src.b) == 0 {
		q.notify = false
		c.mu.Unlock()
		err = c.tls().notify()
		c.mu.Lock()
	}
	switch {
	case err == nil:
	case src.f != nil:
		c.lost(err) // it may be the socket's
	default:
		c.failLocked(err)
	}
	done := err == nil && all && len(src.b) == 0
	if done {
		q.source = src.next
		if q.source == nil {
			c.drain(q) // clears wOut and wFull, if nothing is queued
		}
	}
	c.mu.Unlock()
	if done {
		src.close()
	}
	return err == nil
}

// takeBehind removes the bytes that were written behind a source.
func (c *Conn) takeBehind(src *source) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := src.b
	src.b = nil
	c.extra.out.behind -= len(b)
	c.shared().Counts.Queued.Add(int64(-len(b)))
	return b
}

// sendPiece sends bytes of a source, and reports whether that has not failed.
func (c *Conn) sendPiece(b []byte) bool {
	if t := c.tls(); t != nil {
		return t.sendPiece(b) == nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.feeds() {
		return false
	}
	for len(b) > 0 && !c.rated {
		n, err := c.sendSocket(b)
		if b = b[n:]; n > 0 {
			c.took()
		}
		if err == sock.ErrWouldBlock {
			break
		}
		if err != nil {
			c.lost(err)
			return false
		}
	}
	if len(b) > 0 {
		c.extra.out.push(&c.shared().buffers, b)
		c.shared().Counts.Queued.Add(int64(len(b)))
		if c.rated {
			c.drain(&c.extra.out) // as much as is allowed
		}
	}
	return true
}

// took notes that the system has taken bytes of a source. The lock is held.
func (c *Conn) took() {
	now := c.shared().Wheel.Now()
	c.touch(uint32(now))
	c.extra.out.since = now
}

// dropSources closes the sources of a connection that ends. The caller owns it.
func (c *Conn) dropSources() {
	for {
		c.mu.Lock()
		if c.extra == nil || c.extra.out.source == nil {
			c.mu.Unlock()
			return
		}
		src := c.extra.out.source
		c.extra.out.source = src.next
		c.mu.Unlock()
		c.shared().Guard("a source's Close panicked", src.close)
	}
}

// flush sends queued bytes and from sources, and reports whether Writable is to be called. The
// caller owns the connection.
func (c *Conn) flush() (goOn bool) {
	c.feed()
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&wAborting != 0 {
		return false
	}
	if word&wOut != 0 && !c.drain(&c.extra.out) || word&wHijacked != 0 {
		return false
	}
	return c.word.And(^uint32(wWritable))&wWritable != 0
}
