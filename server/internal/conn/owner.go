package conn

import (
	"io"
	"net"

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

// Handle handles a notification. The connection is released, and the key becomes nil. If keep is
// set, the connection may stay the key and owned, until ReleaseKept releases it with others.
//
// This is the way of a request. If the handler reads and writes once, it costs one receive and one
// send, the connection's lock twice, and of its word eleven loads and six atomic operations that
// write it: Handle sets wOwned, beginCall wGather and hold wHeld; endCall clears wGather, sendHeld
// wHeld and release wOwned.
func (o *Owner) Handle(nt *socknotify.Notification[*Key], now uint32, keep bool) {
	c, read := (*Conn)(nt.Key), true
	if nt.Events == socknotify.EventIn { // the usual case
		word := c.word.Or(wOwned)
		if word&wOwned != 0 {
			nt.Key = nil // the owner enables the registration again
			return
		}
		c.touch(now)
		if word&(wNoRead|wHandshake|wInput) != 0 {
			read = o.events(c, socknotify.EventIn, word)
		}
	} else if c, read = o.handleOther(nt, now); c == nil {
		return
	}
	if read {
		o.call(c)
	}
	if keep && c.word.Load()&wSpecial == 0 {
		return // there is no other worker that could serve it now, and releasing many costs less
	}
	nt.Key = nil // an idle worker must not keep a connection alive
	o.release(c)
}

// handleOther handles any notification that is not just EventIn. If the notification leaves the
// worker the owner of a connection, handleOther returns that, which stays the key, and reports
// whether Data is to be called before releasing it.
func (o *Owner) handleOther(nt *socknotify.Notification[*Key], now uint32) (_ *Conn, read bool) {
	c := (*Conn)(nt.Key)
	nt.Key = nil // an idle worker must not keep a connection alive
	switch {
	case nt.Events&socknotify.EventRemove != 0:
		o.finish(c)
		return nil, false
	case nt.Kind() == socknotify.KindPosted:
		if nt.Data == started {
			o.Start(c)
			return nil, false
		}
		c.word.And(^uint32(wPosted))
	case c == &c.link.listener.key:
		a := *nt
		*nt = socknotify.Notification[*Key]{}
		c.link.listener.accepted(o, &a)
		return nil, false
	}
	word := c.word.Or(wOwned)
	if word&wOwned != 0 {
		return nil, false // the owner enables the registration again
	}
	nt.Key = c.Key()
	if nt.Kind() != socknotify.KindPosted { // a timer is no activity
		c.touch(now)
	}
	return c, o.events(c, nt.Events, word)
}

// events does everything except calling Data for the events of a connection that the worker owns,
// and reports whether Data is to be called.
func (o *Owner) events(c *Conn, e socknotify.Events, word uint32) (read bool) {
	if e&socknotify.EventErr != 0 && c.failed(o.buf, e == socknotify.EventErr) {
		return false
	}
	if e&socknotify.EventOut != 0 {
		o.current = c // a reader of a Stream may panic
		goOn := c.flush()
		o.current = nil
		if goOn && c.word.Load()&wOver == 0 {
			o.beginCall(c)
			o.returned(c, o.shared.server.Writable(c))
		}
		word = c.word.Load()
	}
	if e&socknotify.EventIn == 0 || word&wNoRead != 0 {
		return false
	}
	if word&wHandshake != 0 {
		o.handshake(c)
		return false
	}
	return c.word.Load()&(wInput|wAgain) != wInput || c.moreInput()
}

// Init prepares a new connection, and Start starts it. The caller owns it.
func (c *Conn) Init(l *Listener, held sock.Held) {
	s := l.shared
	c.link, c.held = &l.link, held
	c.word.Store(wOwned)
	if engine.Limits(s.ReadRate) || engine.Limits(s.WriteRate) {
		c.ensureExtra().rates = &rates{flowOf(s.ReadRate, wNoIn), flowOf(s.WriteRate, wNoOut)}
		c.rated = true
	}
	c.active.Store(uint32(s.Wheel.Now()))
	if l.Preamble {
		*c.ensureOpening() = opening{header: true, remote: c.RemoteAddr(), local: c.LocalAddr()}
		c.word.Or(wHandshake)
	}
	if l.TLS != nil {
		c.startTLS(l.TLS)
	}
}

// PostStart has a worker of the connection's port start it.
func (c *Conn) PostStart() { c.shared().Ports[c.Shard].Post(c.Key(), started) }

// started is the data of the post that has a connection started.
const started = 1

// SetWrapper sets what is closed when the socket was closed, before the connection is started.
func (c *Conn) SetWrapper(wrapper net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ensureLayers().wrapper = wrapper
}

// Start starts to serve a connection that Init has prepared.
func (o *Owner) Start(c *Conn) {
	s := o.shared
	word := c.word.Load()
	if word&wHandshake != 0 {
		c.mu.Lock()
		c.extra.opening.began = uint32(s.Wheel.Now())
		c.mu.Unlock()
		if s.HandshakeTimeout > 0 {
			s.Wheel.Set(c, s.HandshakeTimeout)
		}
	}
	switch {
	case word&wHandshake == 0:
		o.open(c)
	case c.extra.opening.header:
		o.preamble(c, true)
	}
	o.release(c)
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

// data calls Data. Unless it must be called, an input is asked first whether what it waits for has
// arrived.
func (o *Owner) data(c *Conn, must bool) {
	if c.word.Load()&wHandshake != 0 {
		o.handshake(c)
		return
	}
	if !must && c.word.Load()&wInput != 0 && !c.moreInput() {
		return
	}
	o.call(c)
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
