package conn

import (
	"context"
	"net"
	"time"
)

// An extra has the fields that most connections do not need most of the time.
type extra struct {
	queue  []byte // queue[head:] is to be sent
	head   int
	memory *buffer       // that the queue is in, or nil
	vec    [][]byte      // used by sendVec
	since  uint64        // tick at which the peer last took queued bytes
	began  uint32        // tick at which the TLS handshake, or the wait for a header, began
	half   uint32        // tick since which the input is half a message; 0 if it is not
	idle   time.Duration // instead of IdleTimeout; negative means never
	slow   time.Duration // instead of WriteTimeout; negative means never
	cause  error         // for the handler's Close
	failed bool          // cause is set, and stays
	vague  bool          // unless a better one comes (see lost)
	shut   bool          // shut down sending when no bytes are queued
	notify bool          // TLS sends a close_notify when no source is left

	transport transport // unless that is TLS
	hijacked  *hijacked
	in        *input
	back      *[]byte // bytes for the input, see giveBack

	source *source // the first of a list
	behind int     // bytes that were written behind sources

	wrapper net.Conn  // to be closed at the end; nil for most connections
	pre     *preamble // nil without Server.Preamble, and where that has found nothing
	timers  *Timer    // those of AfterFunc that were not called, the next one first
	ctx     *cancelable
	rates   *rates // nil without ReadRate and WriteRate
}

// A cancelable is the context of a connection.
type cancelable struct {
	context.Context
	cancel context.CancelCauseFunc
}

// A transport lies between a connection and its handler, such as encryption. It receives by
// recvRaw and sends by send.
type transport interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	CloseWrite() error
}

// transport returns the transport of a connection that is wrapped.
func (c *Conn) transport() transport {
	if t := c.tls(); t != nil {
		return t
	}
	return c.extra.transport
}

// ensureExtra returns the extra, and makes it if there is none. The lock is held.
func (c *Conn) ensureExtra() *extra {
	if c.extra == nil {
		c.extra = c.shared().extras.Get().(*extra)
	}
	return c.extra
}

// dropExtra gives the extra back to the pool if nothing is in it. The lock is held.
func (c *Conn) dropExtra() {
	x := c.extra
	if x == nil || c.word.Load()&wHandshake != 0 ||
		len(x.queue) > 0 || x.shut || x.failed || x.idle != 0 || x.slow != 0 ||
		x.transport != nil || x.hijacked != nil || x.in != nil || x.back != nil ||
		x.source != nil || x.timers != nil || x.ctx != nil ||
		x.rates != nil || x.pre != nil || x.wrapper != nil {
		return
	}
	c.extra = nil
	x.since, x.half = 0, 0
	c.shared().extras.Put(x)
}
