package http2

import (
	"errors"
	"io"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

var (
	errGone         = errors.New("http2: the connection has ended after GOAWAY")
	errClosed error = serving.ClosedError("http2: the connection was closed")
	errIdle   error = serving.TimeoutError("http2: the connection was idle for too long")
	errPing   error = serving.TimeoutError("http2: a PING was not answered in time")
)

// goAway begins the end of the connection, for Shutdown and for a response with "Connection: close". With ifIdle it does
// nothing while there are streams. A new connection ends after its first request, or when the time for that is over.
func (c *conn) goAway(ifIdle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ending >= endGoingAway, ifIdle && len(c.streams) > 0:
	case c.last == 0 && time.Since(c.idleSince.time()) < serving.FirstRequestTime:
		c.setEnding(endAfterFirst)
		c.interrupt() // the connection is due earlier now
	default:
		c.queueGoAway(http2.ErrCodeNo)
		c.startWriting() // and then settle ends it, if it has no streams
	}
}

// queueGoAway queues a GOAWAY frame. The caller holds c.mu.
func (c *conn) queueGoAway(code http2.ErrCode) {
	c.setEnding(endGoingAway)
	c.buffer().b = wire.AppendGoAway(c.buffer().b, c.last, code)
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
	if c.ending == ended {
		return
	}
	c.setEnding(ended)
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
	c.decoder.Drop()
	c.mu.Lock()
	if c.ending != ended {
		code := http2.ErrCodeNo
		var ce http2.ConnectionError
		if errors.As(err, &ce) {
			code = http2.ErrCode(ce)
		}
		c.endStreams(err)
		if c.ending != endGoingAway || code != http2.ErrCodeNo {
			c.queueGoAway(code)
		}
		c.setReader(readerDrains)
		if c.out != nil {
			c.startWriting()
		} else if !c.writing {
			c.closeWrite()
		}
	}
	drains := c.reader == readerDrains
	c.mu.Unlock()
	if !drains {
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
	c.setReader(readerGone)
	over := c.over()
	c.mu.Unlock()
	close(c.done)
	if over {
		c.server.remove(c)
	}
}

// over reports whether nothing of an ended connection is left. The caller holds c.mu.
func (c *conn) over() bool { return c.reader == readerGone && c.running == 0 && c.suspended == 0 }
