package conn

import (
	"cmp"
	"io"
	"net"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// receive receives without the input.
func (c *Conn) receive(b []byte, word uint32) (int, error) {
	switch {
	case c.wrapped:
		n, err := c.transport().Read(b)
		return c.noteReceived(word, n), err
	case word&(wOver|wEOF|wFull) != 0:
		return 0, refusal(word)
	case c.rated || word&wPaused != 0:
		return c.recvLocked(word, b)
	case word&wLast == 0 && fdstate.Of(c.Socket().SyscallConn()).Drained(fdstate.Recv):
		return 0, sock.ErrWouldBlock // bytes that arrive after the drain will notify
	}
	n, err := c.receiveSocket(b)
	return c.received(word, n, err)
}

// received returns the result of a receive. word is from before it.
func (c *Conn) received(word uint32, n int, err error) (int, error) {
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

// receiveSocket receives from the socket. The caller owns the connection.
func (c *Conn) receiveSocket(b []byte) (int, error) {
	n, err := c.held.Recv(b)
	c.shared().traffic.received(n)
	return n, err
}

// noteReceived sets wReceived if n is not 0, and returns n. word is from before the receive.
func (c *Conn) noteReceived(word uint32, n int) int {
	if n > 0 && word&wReceived == 0 {
		c.word.Or(wReceived)
	}
	return n
}

// ended handles an error of a receive: the end of the stream, or a failure. The lock is held.
//
// The system reports a failure of a socket once; afterwards a receive finds the end of the stream.
// Calls that may get that report are made with the lock held until they have noted it in the ending. So
// here it is known whether an io.EOF is the end of the stream or follows a failure.
func (c *Conn) ended(err error) error {
	if err != io.EOF {
		c.lost(err)
		return err
	}
	if c.found() != noCause {
		return cmp.Or(c.extra.ending.cause, err)
	}
	c.word.Or(wEOF)
	return err
}

// recvLocked receives for a goroutine that has the connection after Pause, and where there are
// rates. It holds the lock, because the connection may end at the same time.
func (c *Conn) recvLocked(word uint32, b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rated && len(b) > 0 {
		if b = b[:c.allow(&c.extra.rates.in, len(b))]; len(b) == 0 {
			return 0, sock.ErrWouldBlock
		}
	}
	n, err := c.Socket().Recv(b)
	c.shared().traffic.received(n)
	if c.rated {
		c.extra.rates.in.took(n)
	}
	if err == sock.ErrWouldBlock && word&wLast != 0 {
		err = io.EOF
	}
	if err != nil && err != sock.ErrWouldBlock {
		err = c.ended(err)
	}
	return c.noteReceived(word, n), err
}

// refusal returns the error of a Read that finds a word in which nothing can be received.
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

// recvRaw receives for a transport or a header. It returns tlsrecord.ErrNothing instead of
// sock.ErrWouldBlock. Because that is temporary, crypto/tls can go on after it, and keeps what it has
// of a record or of a handshake message.
func (c *Conn) recvRaw(b []byte) (int, error) {
	word := c.word.Load()
	if word&wOver != 0 {
		return 0, net.ErrClosed
	}
	if word&(wPaused|wLast) == 0 && fdstate.Of(c.Socket().SyscallConn()).Drained(fdstate.Recv) {
		return 0, tlsrecord.ErrNothing
	}
	if c.rated {
		c.mu.Lock()
		defer c.mu.Unlock()
		if b = b[:c.allow(&c.extra.rates.in, len(b))]; len(b) == 0 {
			return 0, tlsrecord.ErrNothing
		}
	}
	n, err := c.Socket().Recv(b) // not held.Recv: the connection may end during a handshake
	c.shared().traffic.received(n)
	if c.rated {
		c.extra.rates.in.took(n)
	}
	if err == sock.ErrWouldBlock {
		if err = tlsrecord.ErrNothing; word&wLast != 0 {
			err = io.EOF
		}
	}
	return n, err
}

// setMore notes whether there are bytes to read that no notification will report.
func (c *Conn) setMore(is bool) {
	switch w := &c.word; {
	case is:
		w.Or(wMore)
	case w.Load()&wMore != 0:
		w.And(^uint32(wMore))
	}
}
