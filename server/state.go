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
	shard    uint16
	index    uint32 // in the table
	extra    *extra // under mu; nil for most connections
	timer    wheel.Timer[*conn]
}

// A Key is a completion key of a server's ports, which stands for a connection or a listener. It has no methods: it is
// for the types of the ports that Server.OnStart is given.
type Key conn

func (c *conn) key() *Key { return (*Key)(c) }

// The state word of a connection. The goroutine that sets wOwned owns the connection until it clears the bit: only the
// owner calls the handler, and it enables the registration when it releases the connection. A notification that finds
// wOwned set is dropped. Nothing is lost by that, because the owner enables a level registration: a condition that still
// holds is reported again.
//
// For the same reason an enable that is not needed does no harm. An enable may be overtaken by that of a later owner and
// so set an older filter. Therefore each owner compares the filter with the word again after enabling (see reacquire).
const (
	wOwned     = 1 << iota // never cleared once the connection ends
	wOut                   // bytes are queued, or there is a source
	wFull                  // more than half of the write queue is in use, or there is a source
	wWritable              // Writable is to be called
	wEOF                   // the end of the stream was received
	wShut                  // sending was shut down
	wPaused                // Data must not be called
	wResumed               // Data must be called, even if nothing has arrived
	wClosing               // close when no bytes are queued
	wAborting              // close now
	wReset                 // and send the peer a reset
	wHijacked              // a net.Conn has the socket, or will have it when no bytes are queued
	wReleased              // hijacked, and the owner has released the connection
	wPosted                // a post with the connection as key is in the queue
	wDead                  // the handler's Close was called, or is being called
	wHandshake             // the header or the TLS handshake is unfinished; the handler does not know the connection
	wMore                  // there are bytes to read that no notification will report
	wDetached              // the socket was given to a net.Conn
	wLast                  // the stream ends with the bytes that have arrived
	wReceived              // the handler has received something
	wGrace                 // Shutdown waits for the first request, and for the answer
	wInput                 // extra has an input
	wAgain                 // Data must be called for what is in the input
	wBack                  // extra has bytes that belong at the begin of the input
	wGather                // a handler's call is running, which sends what is written when it returns
	wHeld                  // the queue has bytes that were written during the call, and not sent yet; excludes wOut
	wNoOut                 // room is not waited for: the reader of a Stream has nothing, or WriteRate forbids to send
	wNoIn                  // ReadRate forbids to receive
	wRated                 // extra has rates; never changes
	wDue                   // a timer is due
)

const (
	wOver   = wClosing | wAborting | wHijacked | wDead
	wNoRead = wOver | wFull | wEOF | wPaused | wNoIn
	// read is not the usual case if one of these is set
	wReadsOtherwise = wOver | wEOF | wFull | wPaused | wLast | wInput | wBack | wRated
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

func (c *conn) Pause() { c.word.Or(wPaused) }
