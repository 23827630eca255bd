package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A conn is a connection, without the handler's state. It is inside a Conn[S], whose methods are documented there.
type conn struct {
	// The fields that a request uses come first, so that they share cache lines.
	listener *listener
	held     sock.Held  // until the connection is freed, except while hijacked; changed by the owner with mu held
	mu       sync.Mutex // held while sending, and for changes of extra
	word     atomic.Uint32
	active   atomic.Uint32 // tick of the latest notification or write
	wrapped  bool          // extra has a transport; never changes once the connection is open
	rated    bool          // extra has rates; never changes
	shard    uint16
	index    uint32 // in the table
	extra    *extra // under mu; nil for most connections
	timer    wheel.Timer[*conn]
}

// A Key is a completion key of a server's ports, which stands for a connection or a listener. It has no methods: it is
// for the types of the ports that Server.OnStart is given.
type Key conn

func (c *conn) key() *Key { return (*Key)(c) }

// The state word of a connection has the bits of its life, its input and its output. They are in
// one word, so that a goroutine that sets a bit learns in the same operation whether the connection
// has an owner, and so that an owner gives it up in one swap with the bits that it has read.
//
// Life: who has the connection, and how it ends. These bits are also the owner's orders.
//
//	bit         set by                                   cleared by
//	wOwned      who acquires it: a worker, reacquire     the owner, by a swap; never once it ends
//	wPosted     wake                                     the worker that dequeues the post
//	wHandshake  admit                                    the owner, after header and handshake
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
// The transitions of several bits, each one swap:
//
//	release          wOwned                        → none
//	callLater        wOwned                        → wResumed
//	attendHijacked   wOwned|wHijacked|wDetached    → and wReleased: there is no owner, and yet no other
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
	wHandshake             // the header or the TLS handshake is unfinished; the handler does not know the connection
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
//	wNoIn       allowIn                                  ratesExpired
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
//	wNoOut      a reader is about to be read, allowOut   the reader had something, goOn, ratesExpired
//
// wHeld and wOut exclude each other: what was held is sent or queued before anything else is.
const (
	wOut      = wBack << (iota + 1) // bytes are queued, or there is a source
	wFull                           // more than half of the write queue is in use, or there is a source
	wWritable                       // Writable is to be called
	wShut                           // sending was shut down
	wGather                         // a handler's call is running, which sends what is written when it returns
	wHeld                           // the queue has bytes that were written during the call, and not sent yet
	wNoOut                          // room is not waited for: the reader of a Stream has nothing, or WriteRate forbids to send
)

const (
	wOver   = wClosing | wAborting | wHijacked | wDead
	wNoRead = wOver | wFull | wEOF | wPaused | wNoIn
	// read is not the usual case if one of these is set
	wReadsOtherwise = wOver | wEOF | wFull | wPaused | wLast | wInput | wBack
	// a call of the input is the usual case if of these wInput alone is set
	wInputUse = wInput | wPaused | wBack
	// release is not the usual case if one of these is set
	wSpecial = wOver | wShut | wResumed | wMore | wLast | wAgain | wDue
)

// An extra has the fields that most connections do not need most of the time. A connection with TLS always has one, so its
// size counts.
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

	transport transport
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

// A transport lies between a connection and its handler, such as encryption. It receives by conn.recv and sends by
// conn.send.
type transport interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	CloseWrite() error
}

func (c *conn) server() *server      { return c.listener.server }
func (c *conn) socket() *sock.Socket { return c.held.Socket() }

// touch notes the time of a notification or a write, for IdleTimeout.
func (c *conn) touch(now uint32) {
	if c.active.Load() != now {
		c.active.Store(now)
	}
}

// Pause stops calls of Data, once the present call has returned, until [Conn.Resume]. What is written is still sent.
// It is for a handler that gives its request to another goroutine, which writes the answer. The handler must call
// Pause before it starts that goroutine.
func (c *conn) Pause() { c.word.Or(wPaused) }
