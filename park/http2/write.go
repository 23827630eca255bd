package http2

import (
	"fmt"
	"sync"
	"time"
)

// Frames are queued in conn.out. The goroutine that has queued some writes them, unless another one is writing; then that
// one, or a goroutine that it starts, writes them next. So handlers write at most one batch for others, and the frames of
// several streams go out together. The goroutine that reads never writes, because a client may not read before it has sent
// everything: it starts a goroutine.

// maxOut bounds what is queued for handlers, and maxControl what is queued in all. Only what the server answers to frames of
// the client can pass maxOut; a client that makes it reach maxControl does not read.
const (
	maxOut     = 32 << 10
	maxControl = 256 << 10
)

type outBuffer struct{ b []byte }

var outBuffers = sync.Pool{New: func() any { return new(outBuffer) }}

func getOut() *outBuffer { return outBuffers.Get().(*outBuffer) }

func (o *outBuffer) release() {
	if cap(o.b) <= 2*(maxOut+maxFrameSize) {
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

// dropOut empties the queue. The caller holds c.mu.
func (c *conn) dropOut() {
	if c.out != nil {
		c.out.release()
		c.out = nil
	}
}

// flush writes what is queued, unless a goroutine is writing. The caller holds c.mu, which flush releases while it writes.
func (c *conn) flush() {
	if c.writing || c.out == nil || c.ended {
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
	if !c.writing && c.out != nil && !c.ended {
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
	if c.draining && !c.ended {
		c.closeWrite()
	}
	c.settle()
}

// writeBatch writes what is queued. c.writing is set. The caller holds c.mu, which writeBatch releases while it writes.
func (c *conn) writeBatch() {
	o := c.out
	c.out = nil
	c.mu.Unlock()
	err := c.write(o.b)
	o.release()
	c.mu.Lock()
	if err != nil {
		c.fail(err)
		return
	}
	for _, st := range c.streams {
		st.cond.Broadcast()
	}
}

// write writes b to the connection.
func (c *conn) write(b []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("http2: panic: %v", p)
			c.server.logf("http2: panic writing to %v: %v", c.conn.RemoteAddr(), p)
		}
	}()
	if d := c.server.config().WriteByteTimeout; d > 0 {
		c.conn.SetWriteDeadline(time.Now().Add(d))
	}
	_, err = c.conn.Write(b)
	return err
}
