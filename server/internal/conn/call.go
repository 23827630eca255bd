package conn

import (
	"io"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// An Owner is a worker as its connections see it: it acquires them, calls the handler and releases
// them. Its methods are called by the worker's goroutine.
type Owner struct {
	Calls uint64           // calls of Data; the worker takes them away
	Times metrics.Recorder // how long they took, with Options.TimeCalls

	shared *Shared
	port   *socknotify.Port[*Key]
	buf    []byte
	reg    [1]socknotify.Registration[*Key]
	regs   [Batch]socknotify.Registration[*Key] // regs[:nregs] are to be enabled together
	nregs  int

	current *Conn // whose handler runs
}

// Batch is the number of notifications that a worker dequeues at a time.
const Batch = 64

// Init prepares an owner for the connections of a port.
func (o *Owner) Init(s *Shared, port *socknotify.Port[*Key]) {
	o.shared, o.port = s, port
	o.buf = make([]byte, s.BufferSize)
	o.reg[0].Trigger = engine.OneShot
	for i := range o.regs {
		o.regs[i].Op, o.regs[i].Trigger = socknotify.OpEnable, engine.OneShot
	}
}

// open calls the handler's Open.
func (o *Owner) open(c *Conn) {
	s := o.shared
	if s.IdleTimeout > 0 {
		s.Wheel.Set(c, s.IdleTimeout)
	}
	o.current = c
	o.returned(c, s.server.Open(c))
}

// call calls Data, and acts on what it returns.
func (o *Owner) call(c *Conn) {
	o.beginCall(c)
	o.returned(c, o.callData(c))
}

// callData calls Data. A call that panics or ends its goroutine is not timed.
func (o *Owner) callData(c *Conn) error {
	o.Calls++
	s := o.shared
	if !s.TimeCalls {
		return s.server.Data(c, o.buf)
	}
	began := engine.Elapsed()
	err := s.server.Data(c, o.buf)
	o.Times.Record(engine.Elapsed() - began)
	return err
}

// beginCall begins a handler's call: no goroutine has the input unless the connection is paused,
// and what the call writes is held.
func (o *Owner) beginCall(c *Conn) {
	o.current = c
	if c.word.Load()&(wInput|wPaused) == wInput {
		c.takeBack()
	}
	c.word.Or(wGather)
}

// returned ends a call of the handler that has returned, and acts on its error.
func (o *Owner) returned(c *Conn, err error) {
	o.current = nil
	c.endCall()
	switch err {
	case nil, sock.ErrWouldBlock:
	case io.EOF:
		c.Close()
	default:
		c.fail(err)
	}
}

// endCall sends what was written during a handler's call, and ends its use of the input.
func (c *Conn) endCall() {
	if word := c.word.And(^uint32(wGather)); word&(wHeld|wInput) != 0 {
		if word&wHeld != 0 {
			c.mu.Lock()
			c.sendHeld()
			c.mu.Unlock()
		}
		if word&wInput != 0 {
			c.endInput()
		}
	}
}

// InCall reports whether the handler of a connection, or another function of the user, was called
// and has not returned.
func (o *Owner) InCall() bool { return o.current != nil }
