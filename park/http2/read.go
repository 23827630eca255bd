package http2

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

func newConn(s *Server, ctx context.Context, netConn net.Conn, handler http.Handler) *conn {
	switch netConn.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		netConn = park.Wrap(netConn)
	}
	c := &conn{server: s, conn: netConn, ctx: ctx, handler: handler, done: make(chan struct{}),
		idleSince: momentOf(time.Now()),
		inflow:    flow.NewReceive(s.connWindow()), outflow: flow.Initial, initial: flow.Initial,
		decoder: wire.NewDecoder(max(s.tableSize(), initialTableSize), int(s.maxHeaderList())),
		encoder: wire.NewEncoder(s.encoderTable())}
	c.function = c.serve
	c.received, c.asks.since = c.idleSince, c.idleSince
	c.queueSettings()
	return c
}

var inBuffers = sync.Pool{New: func() any { return new([wire.HeaderSize + wire.MaxSize]byte) }}

// serve is the connection's function.
func (c *conn) serve(net.Conn) {
	err := errClosed
	defer func() {
		if err != nil { // also after runtime.Goexit in a method of the connection
			c.finish(err)
		}
	}()
	if p := c.try(func() { err = c.read() }); p != nil {
		err = p
	}
}

// read reads, and handles what it has read, until the connection is idle and parked, or has ended. It returns nil if it
// has parked the connection.
func (c *conn) read() error {
	pooled := inBuffers.Get().(*[wire.HeaderSize + wire.MaxSize]byte)
	defer inBuffers.Put(pooled)
	b := input{buf: pooled[:], pooled: pooled[:]}
	c.resume(&b)
	defer b.shrink()
	var readErr error
	for begun := false; ; begun = true {
		full := false
		if begun || b.end == 0 { // otherwise what was received before is handled first
			space := b.free()
			var n int
			n, readErr = c.conn.Read(space)
			b.end += n
			b.moved = b.moved || n > 0
			full = n == len(space)
		}
		if b.end > 0 {
			if err := c.consume(&b); err != nil {
				c.drain(err, pooled[:])
				return err
			}
		}
		if full && b.bulk {
			b.grow()
		}
		if b.bulk {
			runtime.Gosched() // the handler reads the body while it is in the caches
		}
		switch {
		case readErr == nil:
		case !isTimeout(readErr):
			return readErr
		default:
			parked, err := false, c.shorten(&b)
			if err == nil {
				parked, err = c.timedOut(&b)
			}
			if parked {
				return nil
			}
			if err != nil {
				c.drain(err, pooled[:])
				return err
			}
		}
	}
}
