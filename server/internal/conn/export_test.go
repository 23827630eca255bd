package conn

import (
	"io"
	"time"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/sock"
)

// Transport is what SetTransport puts under a connection.
type Transport = transport

func (c *Conn) SetTransport(t Transport) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ensureLayers().transport = t
	c.wrapped = true
}

// Recv receives as a transport does.
func (c *Conn) Recv(b []byte) (int, error) {
	n, err := c.recvRaw(b)
	switch err {
	case tlsrecord.ErrNothing:
		err = sock.ErrWouldBlock
	case io.EOF:
		c.word.Or(wEOF)
	}
	return n, err
}

func (c *Conn) Send(b []byte) (int, error) { return c.send(b) }
func (c *Conn) Shut() error                { return c.shut() }

// AbortAndSet aborts a connection, and sets its timer when dead says that a worker has begun to
// close it. It returns a function that reports whether the timer is armed.
func (c *Conn) AbortAndSet(dead func(reached func() bool)) (armed func() bool) {
	c.mu.Lock() // as SetIdleTimeout does
	defer c.mu.Unlock()
	c.end(wAborting)
	dead(func() bool { return c.word.Load()&wDead != 0 })
	wheel := c.shared().Wheel
	wheel.Set(c, time.Hour)
	return func() bool { return wheel.Stop(c) }
}

// Idles reports whether the handshake is over and no worker has the connection.
func (c *Conn) Idles() bool { return c.word.Load()&(wHandshake|wOwned) == 0 }

// TLSStack returns what makes the TLS of a connection that stays with crypto/tls.
func (c *Conn) TLSStack() *tlsStack { return c.secured().stack }

// Read reads as a worker does.
func (t *tlsStack) Read(b []byte) (int, error) { return t.conn.tls().Read(b) }

func (t *tlsStack) Lock()   { t.mu.Lock() }
func (t *tlsStack) Unlock() { t.mu.Unlock() }
