package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A conn is a connection, without the handler's state. It is inside a Conn[S], whose methods are documented there.
type conn struct {
	// What a request touches comes first, and together.
	listener *listener
	held     sock.Held  // from the first to the last; changed by the owner alone, and under mu
	mu       sync.Mutex // for writing
	word     atomic.Uint32
	active   atomic.Uint32 // the wheel's time of the latest notification
	wrapped  bool          // extra has a transport, for life
	shard    uint16
	index    uint32 // in the table
	extra    *extra // under mu; what few connections need
	timer    wheel.Timer[*conn]
}

// A Key is a completion key of a server's ports, which stands for a connection or a listener. It has no methods: it is
// for the types of the ports that Server.OnStart is given.
type Key conn

func (c *conn) key() *Key { return (*Key)(c) }

// The word of a connection. Whoever sets wOwned owns the connection: its handler runs, nothing else may run
// it, and the registration is enabled again only when it lets go. A notification that finds it owned is
// dropped, because the owner will enable again, by level, and what it was for still holds then.
//
// So an enable too many does no harm, and one that comes late, with an older filter, is made good by
// whoever made it: it looks at the word once more after.
const (
	wOwned     = 1 << iota // for good, once the connection ends
	wOut                   // bytes are queued
	wFull                  // more than half of what may be
	wWritable              // Writable is to be called
	wEOF                   // the end of the stream was received
	wShut                  // sending was shut
	wPaused                // Data is not to be called
	wResumed               // it is to be, whatever has come
	wClosing               // close when nothing is queued
	wAborting              // close now
	wReset                 // and tell the peer so
	wHijacked              // a net.Conn has the socket, or will when nothing is queued
	wReleased              // and the owner has let go
	wPosted                // a post is under way
	wDead                  // Close was called, or is being
	wHandshake             // the handler does not know of it yet
	wMore                  // there is more to read that no notification will tell of
	wDetached              // the socket was given away
	wLast                  // the stream ends with what has come
	wReceived              // the handler has received something
	wGrace                 // Shutdown waits for the peer's first request, and for an answer to that
)

const (
	wOver   = wClosing | wAborting | wHijacked | wDead
	wNoRead = wOver | wFull | wEOF | wPaused
	// read looks closer where one of these is set
	wReadsOtherwise = wOver | wEOF | wFull | wPaused | wLast
	// and release where one of these is
	wSpecial = wOver | wShut | wResumed | wMore | wLast
)

// filter is what a connection that is not owned waits for. The end of the stream is EventIn.
func filter(word uint32) (f socknotify.Events) {
	if word&wNoRead == 0 {
		f = socknotify.EventIn
	}
	if word&(wOut|wWritable) != 0 {
		f |= socknotify.EventOut
	}
	return f
}

// An extra is what a connection has only at times.
type extra struct {
	queue  []byte // from head
	head   int
	shut   bool          // shut sending when nothing is queued
	since  uint64        // when the peer last took something, in the wheel's time
	idle   time.Duration // instead of the server's; negative is never
	slow   time.Duration // likewise, WriteTimeout
	cause  error         // of Close
	failed bool          // cause is settled
	vague  bool          // but for one that says more

	transport transport
	hijacked  *hijacked
}

// A transport is between a connection and its handler, such as encryption. It receives by Conn.recv and
// sends by Conn.send.
type transport interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	CloseWrite() error
}

func (c *conn) server() *server      { return c.listener.server }
func (c *conn) socket() *sock.Socket { return c.held.Socket() }

// touch notes that the connection is not idle.
func (c *conn) touch(now uint32) {
	if c.active.Load() != now {
		c.active.Store(now)
	}
}

// wake has a worker look at a connection that nobody owns, after a change of its word.
func (c *conn) wake() {
	if c.word.Or(wPosted)&wPosted == 0 {
		s := c.server()
		s.shards[c.shard].Post(c.key(), 0)
	}
}

// set adds to the word. Whoever owns the connection will see it; if there is nobody, a worker is woken.
func (c *conn) set(bits uint32) (was uint32) {
	was = c.word.Or(bits)
	if was&wOwned == 0 {
		c.wake()
	}
	return was
}

func (c *conn) Pause() { c.word.Or(wPaused) }
