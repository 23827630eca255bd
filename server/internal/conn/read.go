package conn

import (
	"bytes"
	"io"

	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

func (c *Conn) Read(b []byte) (int, error) {
	word := c.word.Load()
	if word&(wInput|wBack) != 0 {
		return c.readInput(b)
	}
	return c.receive(b, word)
}

const (
	// maxReceives bounds the receives during one call of a handler. If more bytes have arrived,
	// Data is called again, and other connections are served in between.
	maxReceives = 16
)

// usual returns the input for a call of it, in the usual case that there is one and that the
// connection can be read. It is small enough to be inlined. In other cases it returns nil, and
// begin decides.
func (c *Conn) usual() *input {
	if c.word.Load()&(wOver|wInputUse|wFull) != wInput {
		return nil
	}
	in := c.extra.in
	in.want = 0
	return in
}

// begin begins a call of the input that goes back to the mark if it would block.
func (c *Conn) begin() (*input, error) {
	in, err := c.beginRead()
	if err == sock.ErrWouldBlock {
		if in.beyond {
			return nil, ErrTooLong
		}
		in.unread()
	}
	return in, err
}

// beginRead begins any call of the input. While the write queue is full it returns the input and
// sock.ErrWouldBlock.
func (c *Conn) beginRead() (*input, error) {
	word := c.word.Load()
	if word&wOver != 0 {
		return nil, refusal(word)
	}
	if word&wInputUse != wInput {
		c.makeInput(word)
	}
	in := c.extra.in
	in.want = 0
	if word&wFull != 0 {
		in.refused = true
		return in, sock.ErrWouldBlock
	}
	return in, nil
}

// makeInput prepares the input for a call of it: it gives the connection one, if it has none, and
// the input the bytes of giveBack.
func (c *Conn) makeInput(word uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.makeInputLocked(word)
}

// makeInputLocked is makeInput with the lock held.
func (c *Conn) makeInputLocked(word uint32) {
	x := c.ensureExtra()
	if x.in == nil {
		x.in = c.shared().inputs.Get().(*input)
		x.in.mark = -1
		c.word.Or(wInput)
	}
	x.in.held = x.in.held || word&wPaused != 0
	if x.back != nil {
		x.in.setBytes(&c.shared().buffers, *x.back) // takeInput has consumed what was there
		x.back = nil
		c.word.And(^uint32(wBack))
	}
}

func (c *Conn) Buffered() int {
	word := c.word.Load()
	if word&(wInput|wBack) == 0 || word&wOver != 0 {
		return 0
	}
	if word&wInputUse != wInput {
		c.makeInput(word)
	}
	return c.extra.in.end - c.extra.in.pos
}

func (c *Conn) Mark() {
	word := c.word.Load()
	if word&wOver != 0 {
		return
	}
	if word&wInputUse != wInput {
		c.makeInput(word)
	}
	in := c.extra.in // also while the write queue is full, because the message before it is over
	in.mark, in.beyond = in.pos, false
}

func (c *Conn) Peek(n int) ([]byte, error) {
	in, err := c.begin()
	if err != nil {
		return nil, err
	}
	if err := c.need(in, n); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	return in.buf.b[in.pos : in.pos+n : in.pos+n], nil
}

func (c *Conn) Next(n int) ([]byte, error) {
	if in := c.usual(); in != nil && 0 < n && n <= in.end-in.pos && n <= in.left(c.shared().MaxMessage) {
		return in.consume(n), nil
	}
	in, err := c.begin()
	if err != nil {
		return nil, err
	}
	if err := c.need(in, n); err != nil || n == 0 {
		return nil, err
	}
	return in.consume(n), nil
}

func (c *Conn) Discard(n int) error {
	_, err := c.Next(n)
	return err
}

func (c *Conn) Until(delim byte, most int) ([]byte, error) {
	in := c.usual()
	if in == nil {
		var err error
		if in, err = c.begin(); err != nil {
			return nil, err
		}
	}
	limit := in.left(c.shared().MaxMessage)
	if most > 0 {
		limit = min(limit, most)
	}
	for k := 0; ; { // the first k bytes have no delim
		n := min(in.end-in.pos, limit)
		if n > k {
			if i := bytes.IndexByte(in.buf.b[in.pos+k:in.pos+n], delim); i >= 0 {
				return in.consume(k + i + 1), nil
			}
			k = n
		}
		if k >= limit {
			return nil, ErrTooLong
		}
		if err := c.fill(in, k+1); err != nil {
			in.delim = delim
			return nil, in.short(err, -limit)
		}
	}
}

func (c *Conn) Line(most int) ([]byte, error) {
	b, err := c.Until('\n', most)
	if err != nil {
		return nil, err
	}
	n := len(b) - 1
	if n > 0 && b[n-1] == '\r' {
		n--
	}
	return b[:n], nil
}

// need receives until n bytes are there.
func (c *Conn) need(in *input, n int) error {
	if n < 0 {
		return engine.Invalid("n must not be negative, got %d", n)
	}
	if n > in.left(c.shared().MaxMessage) {
		return ErrTooLong
	}
	for in.end-in.pos < n {
		if err := c.fill(in, n); err != nil {
			return in.short(err, n)
		}
	}
	return nil
}

// short returns the error of a call that has found too few bytes because fill has failed. want is
// as in input, but from the present position.
func (in *input) short(err error, want int) error {
	switch {
	case err == sock.ErrWouldBlock:
		if k := in.pos - in.start(); want > 0 {
			want += k
		} else {
			want -= k
		}
		in.want = want
		in.unread()
	case err == io.EOF:
		if in.ended = true; in.end > in.start() {
			return io.ErrUnexpectedEOF
		}
	}
	return err
}

// fill receives at least one byte, or returns why there is none. n is the number of bytes from pos
// that are wanted.
func (c *Conn) fill(in *input, n int) error {
	if in.receives >= maxReceives && !in.held {
		return sock.ErrWouldBlock // Data is called again, because the socket was not drained
	}
	s := c.shared()
	in.makeRoom(&s.buffers, s.BufferSize, n)
	k, err := c.receive(in.buf.b[in.end:], c.word.Load())
	in.end += k
	if k > 0 {
		in.receives++
		return nil
	}
	return err
}

// readInput is Read of a connection that has an input.
func (c *Conn) readInput(b []byte) (int, error) {
	in, err := c.beginRead()
	if err != nil {
		return 0, err
	}
	if k := min(in.end-in.pos, len(b)); k > 0 {
		return copy(b, in.consume(k)), nil
	}
	n, err := c.receive(b, c.word.Load())
	if in.mark >= 0 && n > 0 {
		c.keep(in, b[:n])
	}
	in.ended = in.ended || err == io.EOF
	return n, err
}

// keep adds bytes that Read has received to the marked message, where they count as consumed. If
// they do not fit into it, they are not kept. Then calls of the input return ErrTooLong, because
// they could not go back to the mark.
func (c *Conn) keep(in *input, b []byte) {
	s := c.shared()
	if len(b) > in.left(c.shared().MaxMessage) {
		in.beyond = true
		return
	}
	for len(b) > 0 {
		in.makeRoom(&s.buffers, s.BufferSize, len(b))
		n := copy(in.buf.b[in.end:], b)
		in.end += n
		in.consume(n)
		b = b[n:]
	}
}

// moreInput receives before Data is called for a connection that has an input, and reports whether
// Data is to be called: if what it waits for has arrived, or the end of the stream. The caller owns
// the connection.
func (c *Conn) moreInput() bool {
	in, s := c.extra.in, c.shared()
	was := in.end - in.pos
	if was == 0 {
		return true
	}
	if in.want == 0 && was >= s.MaxMessage {
		c.fail(ErrTooLong)
		return false
	}
	for {
		seen := in.end - in.pos
		err := c.fill(in, max(in.want, seen+1))
		have := in.buf.b[in.pos:in.end]
		complete := len(have) >= in.want
		if in.want < 0 {
			complete = len(have) >= -in.want || bytes.IndexByte(have[seen:], in.delim) >= 0
		}
		switch {
		case err == nil && !complete:
			continue
		case err == nil && in.receives > 0 && len(have) > was:
			return true
		case err != sock.ErrWouldBlock && c.word.Load()&wOver == 0:
			return true // the end of the stream
		}
		c.endInput()
		return false
	}
}

// endInput is called when a handler's call has returned, for a connection that has an input. It
// frees memory, and decides whether Data is called again without another notification. The caller
// owns the connection.
func (c *Conn) endInput() {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, x := c.shared(), c.extra
	in := x.in
	if in.held && c.word.Load()&wPaused != 0 {
		return // until Resume
	}
	left := in.end - in.pos
	consumed := in.consumed > 0
	again := left > 0 && (in.refused || consumed && in.want == 0) ||
		// No notification reports the end, which moreInput has received.
		consumed && !in.ended && c.word.Load()&wEOF != 0
	half := left > 0 && in.want != 0 && !again
	switch {
	case !half:
		in.half = 0
	case s.ReadTimeout > 0 && (consumed || in.half == 0):
		// It is a message of which nothing was there before.
		in.half = max(uint32(s.Wheel.Now()), 1)
		s.Wheel.Hasten(c, s.ReadTimeout)
	}
	c.resetInput(in)
	if again {
		c.word.Or(wAgain)
	}
	if left == 0 {
		x.in = nil
		s.freeInput(in)
		c.word.And(^uint32(wInput))
		c.dropExtra()
		return
	}
	if b := in.buf; left <= len(b.b)/4 && len(b.b) > 1<<smallestBuffer {
		in.buf = s.buffers.get(left)
		copy(in.buf.b, b.b[in.pos:in.end])
		in.pos, in.end = 0, left
		s.buffers.put(b)
	}
}

// resetInput ends a use of the input: a call of the handler, or that of a goroutine after Pause.
// The lock is held.
func (c *Conn) resetInput(in *input) {
	in.mark, in.beyond = -1, false
	in.receives, in.consumed, in.refused, in.held = 0, 0, false, false
	c.shared().buffers.put(in.old)
	in.old = nil
}

// takeBack takes the input back, before a call of the handler, from a goroutine that has used it
// after Pause. The caller owns the connection, which is not paused.
func (c *Conn) takeBack() {
	x := c.extra
	if !x.in.held {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.in.consumed > 0 {
		x.in.half = 0 // what is left is another message
	}
	c.resetInput(x.in)
}

// freeInput gives an input back, with its buffers.
func (s *Shared) freeInput(in *input) {
	s.buffers.put(in.buf)
	s.buffers.put(in.old)
	*in = input{}
	s.inputs.Put(in)
}

// dropInput ends the input of a connection that ends. The connection's lock is held.
func (c *Conn) dropInput() {
	x := c.extra
	if x == nil || x.in == nil || c.word.Load()&wPaused != 0 || x.in.held {
		return // a goroutine that has the connection may use the input still
	}
	in := x.in
	x.in = nil
	c.word.And(^uint32(wInput))
	c.shared().freeInput(in)
}

// giveBack gives the input bytes that were taken from it, or that come before it, when it is next
// used. There is nothing else in the input. The caller holds the lock.
func (c *Conn) giveBack(b []byte) {
	if len(b) > 0 {
		c.extra.back = &b
		c.word.Or(wBack)
	}
}

// takeInput returns a copy of the bytes that were not consumed, and consumes them. The caller owns
// the connection, and holds the lock.
func (c *Conn) takeInput() []byte {
	word := c.word.Load()
	if word&(wInput|wBack) == 0 {
		return nil
	}
	c.makeInputLocked(word & wBack)
	in := c.extra.in
	if in.pos == in.end {
		return nil // there may be no buffer
	}
	return bytes.Clone(in.consume(in.end - in.pos))
}
