package conn

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A Conn is a connection, without the handler's state. It is inside a server.Conn. Exported methods
// without a comment, of this and of other types, are documented in package server.
type Conn struct {
	// The fields that a request uses come first, so that they share cache lines.
	link    *link
	held    sock.Held  // while not hijacked; changed by the owner with mu held
	mu      sync.Mutex // held while sending, and for changes of extra
	word    atomic.Uint32
	active  atomic.Uint32 // tick of the latest notification or write
	wrapped bool          // it has a transport; never changes once the connection is open
	rated   bool          // extra has rates; never changes
	Shard   uint16        // index of its port
	Index   uint32        // in the server's table
	extra   *extra        // under mu; nil for most connections
	timer   wheel.Timer[*Conn]
}

// A Key is a completion key of a server's ports, which stands for a connection or a listener. It
// has no methods: it is for the types of the ports that Server.OnStart is given.
type Key Conn

// Key returns the key of a connection.
func (c *Conn) Key() *Key { return (*Key)(c) }

// An extra has what most connections do not need most of the time, in parts. Those that a message
// needs are values, and come from the pool with it. The others are made when they are needed.
type extra struct {
	out  output  // what is to be sent
	in   *input  // what was received and not consumed
	back *[]byte // bytes for the input, see giveBack

	own      timeouts  // instead of the server's
	timers   *Timer    // those of AfterFunc that were not called, the next one first
	rates    *rates    // nil without ReadRate and WriteRate
	opening  *opening  // until the handler knows the connection
	preamble *Preamble // nil without Server.Preamble, and where that has found nothing
	layers   *layers   // nil for most connections
	hijacked *hijacked
	ending   *ending // nil if nothing has failed, and without a context
}

// An opening is the state of a connection before the handler knows it: while its header and its TLS
// handshake are unfinished.
type opening struct {
	began         uint32 // tick at which the wait for them began
	header        bool   // the header is not complete
	remote, local net.Addr
	b             []byte // received of the header
}

// layers are what lies above and below a connection that is not just a socket.
type layers struct {
	transport transport // unless that is TLS
	wrapper   net.Conn  // to be closed at the end
}

// timeouts are IdleTimeout and WriteTimeout of a connection that has its own. Zero means those of
// the server, and a negative time never.
type timeouts struct{ idle, slow time.Duration }

// An ending is why a connection ends, and the context that ends with it.
type ending struct {
	cause  error // for the handler's Close
	found  finding
	ctx    context.Context // nil until the handler asks for it
	cancel context.CancelCauseFunc
}

// A finding is what is known of the cause of a failure. It only increases.
type finding uint8

const (
	noCause    finding = iota // nothing has failed
	vagueCause                // the cause stays unless a better one comes (see lost)
	knownCause                // the cause stays
)

// A hijacked is the net.Conn of Hijack. While bytes are queued the server still has the socket, and
// Read and Write wait until it has sent them.
type hijacked struct {
	conn  *Conn
	ready chan struct{} // closed when nc or err is set
	nc    net.Conn      // the connection of package net, or
	err   error         // why there is none

	mu               sync.Mutex
	rest             []byte // bytes of the input, which Read returns first
	reading, writing deadline
}

// A deadline is a read or write deadline that applies while there is no socket.
type deadline struct {
	at    time.Time
	moved chan struct{} // closed when at changes; nil if no call waits
}

// A Timer is a call of F that Reset plans.
type Timer struct {
	Conn *Conn
	F    func() error
	due  uint64 // the tick from which it is to be called
	next *Timer // in extra.timers, which is sorted by due
}

// A transport lies between a connection and its handler, such as encryption. It receives by
// recvRaw and sends by send.
type transport interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	CloseWrite() error
}

// A secure is the TLS of a connection, which is optional: a tlsConn. Its methods, where they say
// nothing else, are called without the connection's lock.
type secure interface {
	transport
	sendPiece(b []byte) error    // of a source
	closeNotify() error          // sends a close_notify, or has it sent after the last source
	notify() error               // sends one after the last source
	finish(cause error)          // ends the TLS of a dead connection
	lockAll() (unlock func())    // acquires all locks except the connection's
	hijack(h *hijacked) net.Conn // with all locks held
	resume()                     // takes the connection back, with all locks held
	state() tls.ConnectionState
	dropPeer() // forgets the peer's certificates, unless there is a stack
}

// A link leads from a connection to what it belongs to. Plain connections have that of their
// listener, so that they have no field for TLS. A connection with TLS has one of its own.
type link struct {
	listener *Listener
	tls      secure
}

// tls returns the TLS of the connection, or nil.
func (c *Conn) tls() secure { return c.link.tls }

// transport returns the transport of a connection that is wrapped.
func (c *Conn) transport() transport {
	if t := c.tls(); t != nil {
		return t
	}
	return c.extra.layers.transport
}

func (c *Conn) shared() *Shared { return c.link.listener.shared }

// Socket returns the socket, unless the connection is hijacked.
func (c *Conn) Socket() *sock.Socket { return c.held.Socket() }

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
	if x == nil || len(x.out.queue) > 0 || x.out.shut || x.out.source != nil ||
		x.in != nil || x.back != nil || x.own != (timeouts{}) || x.timers != nil || x.rates != nil ||
		x.opening != nil || x.preamble != nil || x.layers != nil || x.hijacked != nil || x.ending != nil {
		return
	}
	c.extra = nil
	x.out.since = 0
	c.shared().extras.Put(x)
}

// ensureLayers returns the layers, and makes them if there are none. The lock is held.
func (c *Conn) ensureLayers() *layers {
	x := c.ensureExtra()
	if x.layers == nil {
		x.layers = new(layers)
	}
	return x.layers
}

// ensureEnding returns the ending, and makes it if there is none. The lock is held.
func (c *Conn) ensureEnding() *ending {
	x := c.ensureExtra()
	if x.ending == nil {
		x.ending = new(ending)
	}
	return x.ending
}

// ensureOpening returns the opening, and makes it if there is none. The lock is held.
func (c *Conn) ensureOpening() *opening {
	x := c.ensureExtra()
	if x.opening == nil {
		x.opening = new(opening)
	}
	return x.opening
}

// idleLimit returns the idle timeout of the connection; 0 means never. The lock is held.
func (c *Conn) idleLimit() time.Duration {
	if x := c.extra; x != nil && x.own.idle != 0 {
		return max(x.own.idle, 0)
	}
	return c.shared().IdleTimeout
}

// writeLimit returns the write timeout of the connection; 0 means never. The lock is held.
func (c *Conn) writeLimit() time.Duration {
	if x := c.extra; x != nil && x.own.slow != 0 {
		return max(x.own.slow, 0)
	}
	return c.shared().WriteTimeout
}

// lingerTime is the write timeout after Close where there is none otherwise.
const lingerTime = 5 * time.Second

// lingerLimit returns the write timeout after Close.
func (c *Conn) lingerLimit() time.Duration {
	if limit := c.writeLimit(); limit > 0 {
		return limit
	}
	return lingerTime
}

// sent notes the time of a write, for IdleTimeout.
func (c *Conn) sent() {
	if s := c.shared(); !s.SilentIsIdle {
		c.touch(uint32(s.Wheel.Now()))
	}
}

// touch notes the time of a notification or a write, for IdleTimeout.
func (c *Conn) touch(now uint32) {
	if c.active.Load() != now {
		c.active.Store(now)
	}
}
