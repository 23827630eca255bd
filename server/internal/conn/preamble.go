package conn

import (
	"cmp"
	"io"
	"log/slog"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// maxPreamble bounds the bytes of a header, and of what arrives with it. A header of the PROXY
// protocol, version 2, has at most 65,551 bytes.
const maxPreamble = 128 << 10

// opening goes on with the opening of a connection, instead of Data.
func (o *Owner) opening(c *Conn) {
	if c.extra.opening.header {
		o.preamble(c, false)
	} else {
		o.handshake(c)
	}
}

// openingFailed counts and logs a connection that ended before the handler knew it.
func (s *Shared) openingFailed(c *Conn, cause error) {
	p := c.extra.opening
	if !p.header {
		s.handshakeFailed(c, cause)
		return
	}
	if c.link.listener.TLS != nil {
		s.Counts.Handshaking.Add(-1)
	}
	s.preambleFailed(p, cause)
}

// preamble asks Server.Preamble about the bytes that have arrived, at first about none. The worker
// owns the connection.
func (o *Owner) preamble(c *Conn, first bool) {
	s, p := o.shared, c.extra.opening
	if !first {
		n, err := c.recvRaw(o.buf[:min(len(o.buf), maxPreamble-len(p.b))])
		switch {
		case err == tlsrecord.ErrNothing:
			return
		case err == io.EOF:
			c.fail(io.ErrUnexpectedEOF)
			return
		case err != nil:
			c.fail(err)
			return
		}
		p.b = append(p.b, o.buf[:n]...)
	}
	o.current = c // the function may panic
	got, err := s.server.Preamble(p.remote, p.local, p.b)
	o.current = nil
	switch {
	case err == sock.ErrWouldBlock && len(p.b) < maxPreamble:
		return
	case err == sock.ErrWouldBlock:
		err = errPreambleLong
	case err == nil && (got.N < 0 || got.N > len(p.b)):
		err = engine.Invalid("Preamble.N is %d for %d bytes", got.N, len(p.b))
	}
	if err == nil {
		err = s.server.Enter(c, cmp.Or(got.Remote, p.remote))
	}
	if err != nil {
		c.fail(err)
		return
	}
	o.afterPreamble(c, got)
}

// afterPreamble goes on with a connection whose header is complete.
func (o *Owner) afterPreamble(c *Conn, got Preamble) {
	x, plain := c.extra, c.tls() == nil
	rest := x.opening.b[got.N:]
	c.mu.Lock()
	if got.Remote != nil || got.Local != nil || got.Value != nil {
		kept := got
		x.preamble = &kept
	}
	x.opening.header, x.opening.b = false, nil
	if plain {
		x.opening = nil
		c.word.And(^uint32(wHandshake))
		c.giveBack(rest)
	}
	c.dropExtra()
	c.mu.Unlock()
	if !plain {
		s := c.secured().stack
		s.hs.from = c.RemoteAddr()
		if s.first = append(s.first, rest...); len(rest) > 0 {
			o.handshake(c)
		}
		return
	}
	o.open(c)
	if len(rest) > 0 {
		c.word.Or(wAgain)
	}
}

// preambleFailed counts and logs a connection that ended before its header was complete.
func (s *Shared) preambleFailed(p *opening, cause error) {
	from := engine.NameOfPeer(p.remote)
	if _, refused := cause.(Refusal); refused {
		s.Refused(from, cause)
		return
	}
	switch cause {
	case ErrHandshake:
		s.Counts.LateHandshakes.Add(1)
	default:
		s.Counts.RejectedHeaders.Add(1)
	}
	s.Log(slog.LevelDebug, "connection without a valid header",
		"remote", from, "err", cause)
}

func (c *Conn) Preamble() Preamble {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil || c.extra.preamble == nil {
		return Preamble{}
	}
	return *c.extra.preamble
}
