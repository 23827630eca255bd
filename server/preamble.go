package server

import (
	"io"
	"log/slog"
	"net"

	"github.com/socknotify/socknotify/sock"
)

// A Preamble is what Server.Preamble has found at the begin of a connection.
type Preamble struct {
	N             int      // the bytes of the header, which are not received by the handler
	Remote, Local net.Addr // the addresses of the connection, unless they are nil
	Value         any      // for the handler, from Conn.Preamble
}

// maxPreamble bounds the bytes of a header, and of what arrives with it. A header of the PROXY protocol, version 2, has at
// most 65,551 bytes.
const maxPreamble = 128 << 10

// A preamble is the state of a header.
type preamble struct {
	Preamble
	pending       bool // the header is not complete; the handler does not know the connection
	remote, local net.Addr
	b             []byte // received
}

// preamble asks Server.Preamble about the bytes that have arrived, at first about none. The worker owns the connection.
func (w *worker) preamble(c *conn, first bool) {
	s, p := w.server, c.extra.pre
	if !first {
		n, err := c.recvRaw(w.buf[:min(len(w.buf), maxPreamble-len(p.b))])
		switch {
		case err == errAgain:
			return
		case err == io.EOF:
			c.fail(io.ErrUnexpectedEOF)
			return
		case err != nil:
			c.fail(err)
			return
		}
		p.b = append(p.b, w.buf[:n]...)
	}
	w.current = c // the function may panic
	got, err := s.Preamble(p.remote, p.local, p.b)
	w.current = nil
	switch {
	case err == sock.ErrWouldBlock && len(p.b) < maxPreamble:
		return
	case err == sock.ErrWouldBlock:
		err = errPreambleLong
	case err == nil && (got.N < 0 || got.N > len(p.b)):
		err = invalid("Preamble.N is %d for %d bytes", got.N, len(p.b))
	}
	if err == nil {
		err = s.enterAddr(c, got.Remote)
	}
	if err != nil {
		c.fail(err)
		return
	}
	w.afterPreamble(c, got)
}

// afterPreamble goes on with a connection whose header is complete.
func (w *worker) afterPreamble(c *conn, got Preamble) {
	p, t := c.extra.pre, c.tls()
	rest := p.b[got.N:]
	c.mu.Lock()
	p.Preamble, p.pending, p.b = got, false, nil
	if got.Remote == nil && got.Local == nil && got.Value == nil {
		c.extra.pre = nil
	}
	if t == nil {
		c.word.And(^uint32(wHandshake))
		c.giveBack(rest)
	}
	c.dropExtra()
	c.mu.Unlock()
	if t != nil {
		t.hs.from = c.RemoteAddr()
		if t.feed = append(t.feed, rest...); len(rest) > 0 {
			w.handshake(c)
		}
		return
	}
	w.open(c)
	if len(rest) > 0 {
		c.word.Or(wAgain)
	}
}

// preambleFailed counts and logs a connection that ended before its header was complete.
func (s *server) preambleFailed(p *preamble, cause error) {
	from := nameOfPeer(p.remote)
	switch cause {
	case errTooManyAddr, errAcceptRate, errAcceptRateAddr:
		if cause == errTooManyAddr {
			s.counts.refusedPerAddr.Add(1)
		} else {
			s.counts.refused.Add(1)
		}
		s.log(slog.LevelWarn, "connection refused",
			"remote", from, "err", cause)
		return
	case ErrHandshake:
		s.counts.lateHandshakes.Add(1)
	default:
		s.counts.rejectedHeaders.Add(1)
	}
	s.log(slog.LevelDebug, "connection without a valid header",
		"remote", from, "err", cause)
}

// Preamble returns what Server.Preamble has found at the begin of the connection: the zero Preamble if there was no header.
func (c *conn) Preamble() Preamble {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil || c.extra.pre == nil {
		return Preamble{}
	}
	return c.extra.pre.Preamble
}
