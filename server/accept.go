package server

import (
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// accepted handles the notification of a connection that a port has accepted.
func (l *listener) accepted(o *conn.Owner, nt *socknotify.Notification[*Key]) {
	s := l.server
	socket, err := nt.Accepted()
	switch {
	case err != nil && sock.IsExhausted(err):
		s.Log(slog.LevelWarn, engine.CannotAccept, "err", err)
		return
	case err != nil:
		l.failed.Fail(err)
		return
	case socket == nil:
		return
	}
	s.handled.Add(1)
	if l.of != nil && l.isClosed() && !s.isClosing() { // the duplicate has accepted after the close
		socket.Close()
		l.failed.Fail(engine.ErrClosedElsewhere)
	} else if c := s.admit(l, socket); c != nil {
		o.Start(c)
		return
	}
	s.mu.Lock()
	s.checkDrained() // this may have been the last accepted connection that was not handled
	s.mu.Unlock()
}

// admit makes the conn of a new connection, or closes it and returns nil if a limit forbids it. The
// caller owns the conn.
func (s *server) admit(l *listener, socket *sock.Socket) *conn.Conn {
	held, err := socket.Hold()
	if err != nil {
		return nil // does not happen: only a closed socket cannot be held
	}
	c := s.handler.newConn()
	c.Init(&l.conns, held)
	if err := s.addConn(l, c); err != nil {
		if err != ErrServerClosed {
			s.Refused(peer{c}, err) // before the socket is closed, so that a peer that is refused is counted
		}
		socket.Close()
		held.Release()
		return nil
	}
	if l.conns.TCP {
		l.setOptions(held)
	}
	return c
}

// addConn adds a new connection to the table, unless a limit forbids it.
func (s *server) addConn(l *listener, c *conn.Conn) error {
	var from netip.Addr
	o := s.opts
	perAddr := o.MaxConnsPerAddr > 0 || engine.Limits(o.AcceptRatePerAddr)
	if perAddr && l.conns.TCP && o.Preamble == nil {
		from = c.Socket().RemoteAddr().Addr().Unmap()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refusing:
		return ErrServerClosed
	case o.MaxConns > 0 && len(s.table) >= o.MaxConns:
		return conn.ErrTooMany
	case s.hasTooMany(from):
		return conn.ErrTooManyAddr
	}
	if err := s.acceptRates.allow(o.AcceptRate, o.AcceptRatePerAddr, from, time.Now()); err != nil {
		return err
	}
	if s.closing { // Shutdown serves the connections that were accepted before
		c.Late(s.graceOver)
	}
	s.Counts.Accepted.Add(1)
	if l.conns.TLS != nil {
		s.Counts.Handshaking.Add(1)
	}
	if s.table.add(c); len(s.table) == 1 {
		s.SetTicker(engine.Tick)
	}
	s.addrs.enter(c, from)
	c.Shard = uint16(s.deal(c.Socket().Handle()))
	s.shards[c.Shard].conns++
	return nil
}

// hasTooMany reports whether another connection from an address is one too many. The lock is held.
func (s *server) hasTooMany(from netip.Addr) bool {
	return from.IsValid() && s.opts.MaxConnsPerAddr > 0 && s.addrs.n[from] >= s.opts.MaxConnsPerAddr
}

// Enter counts a connection for its address after Server.Preamble has found that, unless a limit
// forbids it.
func (s *server) Enter(c *conn.Conn, remote net.Addr) error {
	if s.opts.MaxConnsPerAddr == 0 && !engine.Limits(s.opts.AcceptRatePerAddr) {
		return nil
	}
	ip, ok := remote.(interface{ AddrPort() netip.AddrPort }) // a header may name a *net.UDPAddr
	if !ok {
		return nil
	}
	from := ip.AddrPort().Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hasTooMany(from) {
		return conn.ErrTooManyAddr
	}
	if err := s.acceptRates.allow(Rate{}, s.opts.AcceptRatePerAddr, from, time.Now()); err != nil {
		return err
	}
	s.addrs.enter(c, from)
	return nil
}

// Left removes a connection from the table.
func (s *server) Left(c *conn.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table.remove(c)
	s.shards[c.Shard].conns--
	s.addrs.leave(c)
	if len(s.table) == 0 {
		s.StopTicker()
		s.checkDrained()
	}
}

// Preamble calls the option of that name.
func (s *server) Preamble(remote, local net.Addr, b []byte) (conn.Preamble, error) {
	p, err := s.opts.Preamble(remote, local, b)
	return conn.Preamble(p), err
}

// A peer logs the address of a connection's peer, which costs a system call, only where the line is
// logged.
type peer struct{ *conn.Conn }

func (p peer) LogValue() slog.Value { return slog.StringValue(engine.NameOfPeer(p.RemoteAddr())) }
