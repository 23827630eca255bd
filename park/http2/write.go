package http2

import (
	"slices"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// Frames are queued in conn.out. The goroutine that has queued some writes them, unless another one is writing; then that
// one, or a goroutine that it starts, writes them next. So handlers write at most one batch for others, and the frames of
// several streams go out together. The goroutine that reads never writes, because a client may not read before it has sent
// everything: it starts a goroutine.

// maxOut bounds what is queued for handlers. When more than maxAnswers bytes that answer frames are queued, or more than
// maxQueue in all, as when bodies are read and the client does not take its windows, the goroutine that reads waits until a
// goroutine that writes has taken them. A client that makes it wait for answerTimeout does not read.
const (
	maxOut     = 32 << 10
	maxAnswers = 1 << 10
	maxQueue   = 256 << 10
)

var answerTimeout = 10 * time.Second // shorter in tests

type outBuffer struct{ b []byte }

var outBuffers = sync.Pool{New: func() any { return new(outBuffer) }}

func getOut() *outBuffer { return outBuffers.Get().(*outBuffer) }

func (o *outBuffer) release() {
	if cap(o.b) <= 2*(maxOut+wire.MaxSize) {
		o.b = o.b[:0]
		outBuffers.Put(o)
	}
}

// buffer returns the queue, to append to it. The caller holds c.mu.
func (c *conn) buffer() *outBuffer {
	if c.out == nil {
		c.out = getOut()
	}
	return c.out
}

// queued returns the bytes that are queued. The caller holds c.mu.
func (c *conn) queued() int {
	if c.out == nil {
		return 0
	}
	return len(c.out.b)
}

// takeOut empties the queue, and returns what was in it, or nil. The caller holds c.mu.
func (c *conn) takeOut() *outBuffer {
	o := c.out
	c.out, c.answers = nil, 0
	if c.taken != nil {
		close(c.taken)
		c.taken = nil
	}
	return o
}

// waitForWriter makes the goroutine that reads wait until the queue is empty, and reports whether it was emptied in time. The
// caller holds c.mu, which waitForWriter releases while it waits.
func (c *conn) waitForWriter() bool {
	c.startWriting()
	taken := make(chan struct{})
	c.taken = taken
	timer := time.NewTimer(answerTimeout)
	defer timer.Stop()
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-taken:
		return true
	case <-timer.C:
		return false
	}
}

// flush writes what is queued, unless a goroutine is writing. The caller holds c.mu, which flush releases while it writes.
func (c *conn) flush() {
	if c.writing || c.out == nil || c.ending == ended {
		return
	}
	c.writing = true
	c.writeBatch()
	if c.out != nil {
		go c.writeRest()
		return
	}
	c.wrote()
}

// startWriting makes a goroutine write what is queued. The caller holds c.mu.
func (c *conn) startWriting() {
	if !c.writing && c.out != nil && c.ending != ended {
		c.writing = true
		go c.writeRest()
	}
}

func (c *conn) writeRest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out != nil {
		c.writeBatch()
	}
	c.wrote()
}

// wrote is called when everything was written. The caller holds c.mu.
func (c *conn) wrote() {
	c.writing = false
	if c.reader == readerDrains && c.ending != ended {
		c.closeWrite()
	}
	c.settle()
}

// writeBatch writes what is queued. c.writing is set. The caller holds c.mu, which writeBatch releases while it writes.
func (c *conn) writeBatch() {
	o := c.takeOut()
	c.wakeSender()
	c.mu.Unlock()
	err := c.write(o.b)
	o.release()
	c.mu.Lock()
	if err != nil {
		c.fail(err)
	}
}

// write writes b to the connection.
func (c *conn) write(b []byte) (err error) {
	if p := c.try(func() { err = c.writeAll(b) }); p != nil {
		return p
	}
	return err
}

func (c *conn) writeAll(b []byte) error {
	d := c.server.config().WriteByteTimeout
	for {
		if d > 0 {
			c.conn.SetWriteDeadline(time.Now().Add(d))
		}
		n, err := c.conn.Write(b)
		if b = b[n:]; err == nil || d <= 0 || n == 0 || !isTimeout(err) {
			return err
		}
	}
}

// wakeSender wakes one stream that waits to send and can send now. A stream that stops sending, or waits, calls it again. So
// all that can send are woken one after the other, and the others not at all: a frame of a few bytes that opens a window by
// a byte must not wake hundreds of handlers. The caller holds c.mu.
func (c *conn) wakeSender() {
	line := &c.roomless
	switch {
	case c.queued() >= maxOut:
		return
	case len(*line) == 0 && c.outflow > 0:
		line = &c.shut
	}
	if len(*line) > 0 {
		(*line)[0].wake()
		*line = slices.Delete(*line, 0, 1)
	}
}

// waitIn waits in a line of streams, until wakeSender has chosen the stream or the stream has changed. The caller holds
// c.mu.
func (st *stream) waitIn(line *[]*stream) {
	st.c.wakeSender()
	*line = append(*line, st)
	st.cond.Wait()
	leave(line, st)
}

// leave removes a stream from a line, if it is there.
func leave(line *[]*stream, st *stream) {
	*line = slices.DeleteFunc(*line, func(other *stream) bool { return other == st })
}

// enline adds a stream that was taken over to a line, unless it is there. The caller holds c.mu.
func (c *conn) enline(line *[]*stream, st *stream) {
	if !slices.Contains(*line, st) {
		*line = append(*line, st)
	}
}

// unline removes a stream that was taken over, and has ended, from the lines. It may have been woken
// to send. The caller holds c.mu.
func (c *conn) unline(st *stream) {
	for _, line := range []*[]*stream{&c.roomless, &c.shut} {
		leave(line, st)
	}
	c.wakeSender()
}
