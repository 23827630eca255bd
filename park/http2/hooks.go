package http2

import (
	"net/http"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// changed queues a state for the hook ConnState. The caller holds c.mu, and calls announce without it.
func (c *conn) changed(state http.ConnState) {
	if c.server.Server.ConnState != nil {
		c.states = append(c.states, state)
	}
}

// unlock releases c.mu, and then calls announce if a state is queued.
func (c *conn) unlock() {
	queued := len(c.states) > 0
	c.mu.Unlock()
	if queued {
		c.announce()
	}
}

// announce calls the hook ConnState with the states that are queued, in their order.
func (c *conn) announce() {
	c.hookMu.Lock()
	defer c.hookMu.Unlock()
	for c.announceNext() {
	}
}

// announceNext announces the first state in the queue, and reports whether there was one. A panic of the hook costs the
// connection, as in net/http.
func (c *conn) announceNext() bool {
	c.mu.Lock()
	if len(c.states) == 0 {
		c.mu.Unlock()
		return false
	}
	state := c.states[0]
	if c.states = c.states[1:]; len(c.states) == 0 {
		c.states = nil
	}
	c.mu.Unlock()
	netConn := c.conn
	if p, ok := netConn.(*park.Conn); ok {
		netConn = p.NetConn()
	}
	if c.try(func() { c.server.Server.ConnState(netConn, state) }) != nil && state != http.StateClosed {
		c.abort()
	}
	return true
}

// try calls f. It returns nil if f has returned. A panic is logged as net/http does, and returned.
func (c *conn) try(f func()) error {
	p := serving.Try(f)
	if p == nil {
		return nil
	}
	if p.Value != http.ErrAbortHandler {
		c.server.logf("http2: panic serving %v: %v\n%s", serving.Remote(c.conn), p.Value, p.Stack)
	}
	return p
}
