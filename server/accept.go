package server

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// admitted is the data of a post whose key is a connection that admit has returned, and that is to be started.
const admitted = 1

// accepted handles the notification of a connection that a port has accepted.
func (w *worker) accepted(l *listener, nt *socknotify.Notification[*Key]) {
	s := w.server
	socket, err := nt.Accepted()
	switch {
	case err != nil && sock.IsExhausted(err):
		s.log(slog.LevelWarn, "cannot accept, trying again", "err", err)
		return
	case err != nil:
		l.failed.fail(err)
		return
	case socket == nil:
		return
	}
	s.handled.Add(1)
	if l.of != nil && l.isClosed() && !s.isClosing() { // the duplicate has accepted after the listener was closed
		socket.Close()
		l.failed.fail(errClosedElsewhere)
	} else if c := s.admit(l, socket); c != nil {
		w.startConn(c)
		return
	}
	s.mu.Lock()
	s.checkDrained() // this may have been the last accepted connection that was not handled
	s.mu.Unlock()
}

// admit makes the conn of a new connection, or closes it and returns nil if a limit forbids it. The caller owns the conn.
func (s *server) admit(l *listener, socket *sock.Socket) *conn {
	held, err := socket.Hold()
	if err != nil {
		return nil // does not happen: only a closed socket cannot be held
	}
	c := s.handler.newConn()
	c.listener, c.held = l, held
	c.word.Store(wOwned)
	if on(s.ReadRate) || on(s.WriteRate) {
		c.ensureExtra().rates = new(rates)
		c.rated = true
	}
	c.active.Store(uint32(s.wheel.Now()))
	if s.Preamble != nil {
		c.ensureExtra().pre = &preamble{pending: true, remote: c.RemoteAddr(), local: c.LocalAddr()}
		c.word.Or(wHandshake)
	}
	if l.tls != nil {
		c.startTLS(l.tls)
	}
	if err := s.addConn(c); err != nil {
		if err != ErrServerClosed {
			n := &s.counts.refused
			if err == errTooManyAddr {
				n = &s.counts.refusedPerAddr
			}
			n.Add(1) // before the socket is closed, so that a peer that is refused is counted
			s.log(slog.LevelWarn, "connection refused",
				"remote", peer{c}, "err", err)
		}
		socket.Close()
		held.Release()
		return nil
	}
	if l.tcp {
		l.setOptions(held)
	}
	return c
}

// startConn starts to serve a connection that admit has returned.
func (w *worker) startConn(c *conn) {
	s := w.server
	word := c.word.Load()
	if word&wHandshake != 0 {
		c.mu.Lock()
		c.extra.began = uint32(s.wheel.Now())
		c.mu.Unlock()
		if s.HandshakeTimeout > 0 {
			s.wheel.Set(c, s.HandshakeTimeout)
		}
	}
	switch {
	case s.Preamble != nil:
		w.preamble(c, true)
	case word&wHandshake == 0:
		w.open(c)
	}
	w.release(c)
}

// open calls the handler's Open.
func (w *worker) open(c *conn) {
	s := w.server
	if s.IdleTimeout > 0 {
		s.wheel.Set(c, s.IdleTimeout)
	}
	w.current = c
	w.returned(c, s.handler.open(c))
}

// addConn adds a new connection to the table, unless a limit forbids it.
func (s *server) addConn(c *conn) error {
	var from netip.Addr
	if (s.MaxConnsPerAddr > 0 || on(s.AcceptRatePerAddr)) && c.listener.tcp && s.Preamble == nil {
		from = c.socket().RemoteAddr().Addr().Unmap()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refusing:
		return ErrServerClosed
	case s.MaxConns > 0 && len(s.table) >= s.MaxConns:
		return errTooMany
	case s.hasTooMany(from):
		return errTooManyAddr
	}
	if err := s.acceptRates.allow(s.AcceptRate, s.AcceptRatePerAddr, from, time.Now()); err != nil {
		return err
	}
	if s.closing { // Shutdown serves the connections that were accepted before
		c.word.Or(wGrace)
		if s.graceOver {
			c.word.Store(wOwned | c.word.Load()&wHandshake | wLast | wResumed)
		}
	}
	s.counts.accepted.Add(1)
	if c.listener.tls != nil {
		s.counts.handshaking.Add(1)
	}
	if s.table.add(c); len(s.table) == 1 {
		s.wheel.Set(s.ticker, tick)
	}
	s.addrs.enter(c, from)
	c.shard = uint16(s.deal(c.socket().Handle()))
	s.shards[c.shard].conns++
	return nil
}

// hasTooMany reports whether another connection from an address is one too many. The lock is held.
func (s *server) hasTooMany(from netip.Addr) bool {
	return from.IsValid() && s.MaxConnsPerAddr > 0 && s.addrs.n[from] >= s.MaxConnsPerAddr
}

// enterAddr counts a connection for its address after Server.Preamble has found that, unless a limit forbids it. named is
// the address in the header, or nil.
func (s *server) enterAddr(c *conn, named net.Addr) error {
	if s.MaxConnsPerAddr == 0 && !on(s.AcceptRatePerAddr) {
		return nil
	}
	if named == nil {
		named = c.extra.pre.remote
	}
	ip, ok := named.(interface{ AddrPort() netip.AddrPort }) // the header may have named a *net.UDPAddr
	if !ok {
		return nil
	}
	from := ip.AddrPort().Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasTooMany(from) {
		return errTooManyAddr
	}
	if err := s.acceptRates.allow(Rate{}, s.AcceptRatePerAddr, from, time.Now()); err != nil {
		return err
	}
	s.addrs.enter(c, from)
	return nil
}

// removeConn removes a connection from the table.
func (s *server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.remove(c)
	s.shards[c.shard].conns--
	s.addrs.leave(c)
	if len(s.table) == 0 {
		s.wheel.Stop(s.ticker)
		s.checkDrained()
	}
}
