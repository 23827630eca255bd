package server

import (
	"cmp"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/internal/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A Conn is a connection of a server. Read is for the handler's calls, and for whoever the handler has given
// the connection to by Pause; all other methods may be called by any goroutine at any time.
//
// A Conn that is idle costs no goroutine and no buffer.
type Conn[S any] struct {
	// State is the handler's.
	State S

	// What a request touches comes first, and together.
	listener *listener[S]
	held     sock.Held  // from the first to the last; changed by the owner alone, and under mu
	mu       sync.Mutex // for writing
	word     atomic.Uint32
	active   atomic.Uint32 // the wheel's time of the latest notification
	wrapped  bool          // extra has a transport, for life
	port     uint16
	index    uint32 // in the table
	extra    *extra // under mu; what few connections need
	timer    wheel.Timer[*Conn[S]]
}

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
	wWant                  // Writable is to be called
	wEOF                   // the end of the stream was received
	wShut                  // sending was shut
	wPaused                // Data is not to be called
	wResumed               // it is to be, whatever has come
	wClosing               // close when nothing is queued
	wAborting              // close now
	wReset                 // and tell the peer so
	wHijacked              // a net.Conn has the socket, or will when nothing is queued
	wAway                  // and the owner has let go
	wWoken                 // a post is under way
	wDead                  // Close was called, or is being
	wHandshake             // the handler does not know of it yet
	wMore                  // there is more to read that no notification will tell of
	wUnheld                // the socket was given away
	wLast                  // the stream ends with what has come
	wSpoke                 // the handler has received something
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
	if word&(wOut|wWant) != 0 {
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

func (c *Conn[S]) server() *Server[S]   { return c.listener.server }
func (c *Conn[S]) socket() *sock.Socket { return c.held.Socket() }

// Read receives what has come, without waiting: sock.ErrWouldBlock where there is nothing, io.EOF at the end
// of the stream, after which the connection can still be written to. After a receive that found everything,
// asking again costs no system call. While the peer does not read what is written, nothing is read from it
// either (see Server.WriteQueue).
//
// A failure, such as a reset of the peer's, ends the connection.
func (c *Conn[S]) Read(b []byte) (int, error) { return c.read(b, c.wrapped) }

// recv is Read without a transport.
func (c *Conn[S]) recv(b []byte) (int, error) { return c.read(b, false) }

// read is Read, which is small enough to be inlined. What is usual is all here, as in write.
func (c *Conn[S]) read(b []byte, wrapped bool) (int, error) {
	word := c.word.Load()
	if wrapped || !direct || word&wReadsOtherwise != 0 || len(b) == 0 {
		return c.readOtherwise(b, wrapped, word)
	}
	t := fdstate.Of(c.socket().SyscallConn())
	if t.Drained(fdstate.Recv) {
		return 0, sock.ErrWouldBlock // what has come since will make a notification
	}
	of, turn := c.held.Ahead(fdstate.Recv, b)
	k, e := directRecv(t.Handle(), of)
	n := int(k)
	if n > 0 {
		c.held.Took(of, turn, n)
		if word&wSpoke == 0 {
			c.word.Or(wSpoke)
		}
		return n, nil
	}
	n, err := c.held.Made(fdstate.Recv, of, turn, n, e)
	return c.received(word, n, err)
}

// readOtherwise is for what is not usual.
func (c *Conn[S]) readOtherwise(b []byte, wrapped bool, word uint32) (int, error) {
	if wrapped {
		n, err := c.extra.transport.Read(b)
		return c.heard(word, n), err
	}
	if word&(wOver|wEOF|wFull) != 0 {
		return 0, refusal(word)
	}
	var n int
	var err error
	switch {
	case word&wPaused != 0:
		return c.recvPaused(word, b)
	case word&wLast == 0 && fdstate.Of(c.socket().SyscallConn()).Drained(fdstate.Recv):
		err = sock.ErrWouldBlock
	default:
		n, err = c.held.Recv(b)
	}
	return c.received(word, n, err)
}

// received is what has come of a receive that began with a word.
func (c *Conn[S]) received(word uint32, n int, err error) (int, error) {
	if err == sock.ErrWouldBlock && word&wLast != 0 {
		err = io.EOF
	}
	if err != nil && err != sock.ErrWouldBlock {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.ended(err)
	}
	return c.heard(word, n), err
}

// heard notes that the peer has sent something to the handler, where it has.
func (c *Conn[S]) heard(word uint32, n int) int {
	if n > 0 && word&wSpoke == 0 {
		c.word.Or(wSpoke)
	}
	return n
}

// ended is the end of what is received, or a failure. The lock is held.
//
// The system tells of a failure once, and afterwards a receive finds the end of a stream. Other calls that may be told
// are made under the lock, which they keep until they have noted it. So an end that is one of these is known here.
func (c *Conn[S]) ended(err error) error {
	if err != io.EOF {
		c.lost(err)
		return err
	}
	if x := c.extra; x != nil && x.failed {
		return cmp.Or(x.cause, err)
	}
	c.word.Or(wEOF)
	return err
}

// recvPaused receives for a goroutine that the connection was given to by Pause, and under which it may end.
func (c *Conn[S]) recvPaused(word uint32, b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.socket().Recv(b)
	if err == sock.ErrWouldBlock && word&wLast != 0 {
		err = io.EOF
	}
	if err != nil && err != sock.ErrWouldBlock {
		err = c.ended(err)
	}
	return c.heard(word, n), err
}

// refusal is why nothing is received in a state.
func refusal(word uint32) error {
	switch {
	case word&wHijacked != 0:
		return errHijacked
	case word&wOver != 0:
		return net.ErrClosed
	case word&wEOF != 0:
		return io.EOF
	}
	return sock.ErrWouldBlock
}

// touch notes that the connection is not idle.
func (c *Conn[S]) touch(now uint32) {
	if c.active.Load() != now {
		c.active.Store(now)
	}
}

// wake has a worker look at a connection that nobody owns, after a change of its word.
func (c *Conn[S]) wake() {
	if c.word.Or(wWoken)&wWoken == 0 {
		s := c.server()
		s.ports[c.port].Post(c, 0)
	}
}

// set adds to the word. Whoever owns the connection will see it; if there is nobody, a worker is woken.
func (c *Conn[S]) set(bits uint32) (was uint32) {
	was = c.word.Or(bits)
	if was&wOwned == 0 {
		c.wake()
	}
	return was
}

// Pause has Data not called, from when the present call returns, until [Conn.Resume]. What is written goes
// out meanwhile. It is for a handler that gives its request to another goroutine, which writes the answer;
// it pauses before it starts that goroutine.
func (c *Conn[S]) Pause() { c.word.Or(wPaused) }
