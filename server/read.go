package server

import (
	"cmp"
	"io"
	"net"

	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

func (c *conn) Read(b []byte) (int, error) { return c.read(b, c.wrapped) }

// recv is Read without a transport.
func (c *conn) recv(b []byte) (int, error) { return c.read(b, false) }

// read is Read, which is small enough to be inlined.
func (c *conn) read(b []byte, wrapped bool) (int, error) {
	word := c.word.Load()
	if wrapped || word&wReadsOtherwise != 0 {
		return c.readOtherwise(b, wrapped, word)
	}
	if c.socket().FD().Drained(fdstate.Recv) {
		return 0, sock.ErrWouldBlock // what has come since will make a notification
	}
	n, err := c.held.Recv(b)
	if n > 0 && word&wReceived != 0 {
		return n, nil
	}
	return c.received(word, n, err)
}

// readOtherwise is for what is not usual.
func (c *conn) readOtherwise(b []byte, wrapped bool, word uint32) (int, error) {
	if wrapped {
		n, err := c.extra.transport.Read(b)
		return c.noteReceived(word, n), err
	}
	if word&(wOver|wEOF|wFull) != 0 {
		return 0, refusal(word)
	}
	if word&wPaused != 0 {
		return c.recvPaused(word, b)
	}
	n, err := c.held.Recv(b)
	return c.received(word, n, err)
}

// received is what has come of a receive that began with a word.
func (c *conn) received(word uint32, n int, err error) (int, error) {
	if err == sock.ErrWouldBlock && word&wLast != 0 {
		err = io.EOF
	}
	if err != nil && err != sock.ErrWouldBlock {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.ended(err)
	}
	return c.noteReceived(word, n), err
}

// heard notes that the peer has sent something to the handler, where it has.
func (c *conn) noteReceived(word uint32, n int) int {
	if n > 0 && word&wReceived == 0 {
		c.word.Or(wReceived)
	}
	return n
}

// ended is the end of what is received, or a failure. The lock is held.
//
// The system tells of a failure once, and afterwards a receive finds the end of a stream. Other calls that may be told
// are made under the lock, which they keep until they have noted it. So an end that is one of these is known here.
func (c *conn) ended(err error) error {
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
func (c *conn) recvPaused(word uint32, b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.socket().Recv(b)
	if err == sock.ErrWouldBlock && word&wLast != 0 {
		err = io.EOF
	}
	if err != nil && err != sock.ErrWouldBlock {
		err = c.ended(err)
	}
	return c.noteReceived(word, n), err
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
