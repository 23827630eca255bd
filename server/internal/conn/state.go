package conn

import (
	"context"
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

// Layers are what lies above and below a connection that is not just a socket.
type layers struct {
	transport transport // unless that is TLS
	wrapper   net.Conn  // to be closed at the end
}

// Timeouts are IdleTimeout and WriteTimeout of a connection that has its own. Zero means those of
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
	return c.extra.layers.transport
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

// The state word of a connection has the bits of its life, its input and its output. They are in
// one word, so that a goroutine that sets a bit learns in the same operation whether the connection
// has an owner, and so that an owner gives it up in one swap with the bits that it has read.
//
// Life: who has the connection, and how it ends. These bits are also the owner's orders.
//
//	bit         set by                                   cleared by
//	wOwned      who acquires it: a worker, reacquire     the owner, by a swap; never once it ends
//	wPosted     wake                                     the worker that dequeues the post
//	wHandshake  Init                                     the owner, after header and handshake
//	wPaused     Pause, a TLS handshake that computes     Resume, a TLS handshake that waits
//	wResumed    Resume, callLater, the end of a stream   the owner, which calls Data
//	wDue        the wheel                                the owner, which calls the timers
//	wGrace      Shutdown                                 the first answer, or the end of grace
//	wLast       the end of grace                         never
//	wHijacked   Hijack                                   Resume, end
//	wDetached   giveSocket                               Resume
//	wReleased   the owner of a hijacked connection       releaseHijacked, with wHijacked
//	wClosing    Close                                    never
//	wAborting   Abort, a failure, a timeout              never
//	wReset      Abort                                    never
//	wDead       finish                                   never
//
// The operations on it, of which each is one:
//
//	acquire          sets wOwned. The goroutine is the owner if the bit was clear, and if it was set
//	                 it does nothing more: the owner looks again before it releases.
//	set              sets other bits, and wakes a worker if wOwned was clear. An owner acts on the
//	                 bits, because its release fails if they are new.
//	wake             sets wPosted, and posts the connection if the bit was clear.
//	release          clears wOwned, if the word is the one that the owner has acted on.
//
// The transitions of several bits, each one swap, too:
//
//	callLater        wOwned                        → wResumed
//	attendHijacked   wOwned|wHijacked|wDetached    → and wReleased: no owner, and yet no other
//	end              wHijacked, or none            → wClosing, or wAborting and perhaps wReset
//	releaseHijacked  wOwned|wHijacked|wReleased    → wResumed|wAgain, or wAborting
//
// Only the owner calls the handler, and it enables the registration when it releases the
// connection. A notification that finds wOwned set is dropped. Nothing is lost by that, because the
// owner enables a level registration: a condition that still holds is reported again. For the same
// reason an enable that is not needed does no harm. An enable may be overtaken by that of a later
// owner and so set an older filter. Therefore each owner compares the filter with the word again
// after enabling (see reacquire).
const (
	wOwned     = 1 << iota // a goroutine has the connection
	wPosted                // a post with the connection as key is in the queue
	wHandshake             // the header or TLS handshake is unfinished; the handler does not know it
	wPaused                // Data must not be called
	wResumed               // Data must be called, even if nothing has arrived
	wDue                   // a timer is due
	wGrace                 // Shutdown waits for the first request, and for the answer
	wLast                  // the stream ends with the bytes that have arrived
	wHijacked              // a net.Conn has the socket, or will have it when no bytes are queued
	wDetached              // the socket was given to a net.Conn
	wReleased              // hijacked, and the owner has released the connection
	wClosing               // close when no bytes are queued
	wAborting              // close now
	wReset                 // and send the peer a reset
	wDead                  // the handler's Close was called, or is being called
)

// Input. The owner changes these bits; ReadRate's is cleared by the wheel, and wBack is set by
// Resume.
//
//	bit         set by                                   cleared by
//	wEOF        a receive                                never
//	wReceived   a receive                                never
//	wNoIn       allow                                    ratesExpired
//	wMore       TLS                                      TLS
//	wInput      the first call of the input              endInput, dropInput
//	wAgain      endInput, Resume, a header               the owner, which calls Data
//	wBack       giveBack                                 the first call of the input
const (
	wEOF      = wDead << (iota + 1) // the end of the stream was received
	wReceived                       // the handler has received something
	wNoIn                           // ReadRate forbids to receive
	wMore                           // there are bytes to read that no notification will report
	wInput                          // extra has an input
	wAgain                          // Data must be called for what is in the input
	wBack                           // extra has bytes that belong at the begin of the input
)

// Output. These bits change with the connection's lock held, except wWritable, wGather, and
// wNoOut for a reader.
//
//	bit         set by                                   cleared by
//	wOut        queued, appendSource                     drain, with wFull
//	wFull       queued, appendSource                     drain
//	wWritable   WantWritable, a refused write            flush, before Writable
//	wShut       shutLocked                               never
//	wGather     beginCall                                endCall; sendHeld, if the call takes long
//	wHeld       hold                                     sendHeld, sendVec
//	wNoOut      a reader is about to be read, allow      the reader had something, goOn, ratesExpired
//
// wHeld and wOut exclude each other: what was held is sent or queued before anything else is.
const (
	wOut      = wBack << (iota + 1) // bytes are queued, or there is a source
	wFull                           // more than half of the queue is in use, or there is a source
	wWritable                       // Writable is to be called
	wShut                           // sending was shut down
	wGather                         // a handler's call runs, which sends when it returns
	wHeld                           // the queue has bytes of that call, which were not sent yet
	wNoOut                          // room is not waited for: a reader has nothing, or WriteRate forbids
)

const (
	wOver   = wClosing | wAborting | wHijacked | wDead
	wNoRead = wOver | wFull | wEOF | wPaused | wNoIn
	// a call of the input is the usual case if of these wInput alone is set
	wInputUse = wInput | wPaused | wBack
	// release is not the usual case if one of these is set
	wSpecial = wOver | wShut | wResumed | wMore | wLast | wAgain | wDue
)

// Word returns the state word, for tests.
func (c *Conn) Word() uint32 { return c.word.Load() }

// A link leads from a connection to what it belongs to. Plain connections have that of their
// listener, so that they have no field for TLS. A connection with TLS has one of its own.
type link struct {
	listener *Listener
	tls      *tlsConn
}

func (c *Conn) shared() *Shared { return c.link.listener.shared }

// Socket returns the socket, unless the connection is hijacked.
func (c *Conn) Socket() *sock.Socket { return c.held.Socket() }

// touch notes the time of a notification or a write, for IdleTimeout.
func (c *Conn) touch(now uint32) {
	if c.active.Load() != now {
		c.active.Store(now)
	}
}

// wake posts a connection that has no owner, so that a worker acquires it and acts on its word.
func (c *Conn) wake() {
	if c.word.Or(wPosted)&wPosted == 0 {
		s := c.shared()
		s.Ports[c.Shard].Post(c.Key(), 0)
	}
}

// set sets bits of the word. If the connection has an owner, that acts on them when it releases the
// connection; otherwise a worker is woken.
func (c *Conn) set(bits uint32) (was uint32) {
	was = c.word.Or(bits)
	if was&wOwned == 0 {
		c.wake()
	}
	return was
}

func (c *Conn) Pause() { c.word.Or(wPaused) }
