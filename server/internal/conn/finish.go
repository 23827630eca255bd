package conn

import (
	"net"

	"github.com/socknotify/socknotify"
)

// ends removes a connection that is owned, if its word says so, and reports whether the connection
// ends.
func (o *Owner) ends(c *Conn, word uint32) bool {
	switch {
	case word&wDead != 0:
		return true
	case word&wAborting != 0,
		word&(wClosing|wOut) == wClosing,
		word&(wShut|wEOF|wOut|wPaused) == wShut|wEOF:
		o.remove(c)
		return true
	}
	return false
}

// remove removes the registration. The worker that dequeues the EventRemove finishes the
// connection. If there was no registration, nothing will be dequeued, and remove finishes it.
func (o *Owner) remove(c *Conn) {
	o.current = nil
	r := &o.reg[0]
	r.Conn, r.Key, r.Filter, r.Op = c.Socket(), c.Key(), 0, socknotify.OpRemove
	o.shared.Ports[c.Shard].Process(o.reg[:], nil, 0)
	r.Conn, r.Key = nil, nil
	if r.Result != nil {
		o.finish(c)
	}
}

// finish calls the handler's Close and frees the connection, after its last notification.
func (o *Owner) finish(c *Conn) {
	s := o.shared
	word := c.word.Or(wDead | wOwned)
	if word&wDead != 0 {
		return
	}
	c.mu.Lock()
	s.Wheel.Stop(c) // with the lock held, because timers are set with it held, after a look at wDead
	cause := c.cause()
	c.cancelContext()
	if c.extra != nil {
		c.extra.timers = nil
	}
	c.mu.Unlock()
	if word&wHandshake != 0 {
		s.openingFailed(c, cause)
		o.free(c)
		return
	}
	o.current = c
	c.dropSources()
	s.server.Close(c, cause)
	o.current = nil
	if t := c.tls(); t != nil {
		t.finish(cause)
	}
	o.free(c)
}

// free closes the socket and removes the connection from the table.
func (o *Owner) free(c *Conn) {
	s := o.shared
	var wrapper net.Conn
	c.mu.Lock()
	if x := c.extra; x != nil {
		if x.layers != nil {
			wrapper, x.layers.wrapper = x.layers.wrapper, nil
		}
		s.Counts.Queued.Add(-int64(x.out.total()))
		x.out.drop(&s.buffers)
	}
	c.dropInput()
	if c.word.Load()&wReset != 0 {
		c.Socket().SetLinger(0)
	}
	c.Socket().Close()
	if c.word.Load()&wDetached == 0 {
		c.held.Release()
	} else {
		s.Counts.Hijacked.Add(-1)
	}
	c.mu.Unlock()
	s.server.Left(c)
	if wrapper != nil {
		s.Guard("Close of a wrapped connection panicked", wrapper.Close) // its socket is closed
	}
}

// Panicked closes the connection whose handler has panicked, or has called runtime.Goexit: then
// value is nil.
func (o *Owner) Panicked(value any) {
	s, c := o.shared, o.current
	o.current = nil
	s.Label()
	c.endCall()
	e := s.Panicked("handler panicked", value, c.RemoteAddr())
	if c.word.Load()&wDead != 0 {
		o.free(c)
		return
	}
	c.fail(e)
	// Release it by a post. Ending it here could call the handler's Close, and a panic of that
	// would not be recovered.
	c.word.And(^uint32(wOwned))
	c.wake()
}
