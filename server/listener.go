package server

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// A listener is a listening socket that is served.
type listener struct {
	server *server
	sock   *sock.Socket
	of     *original // that sock is a duplicate of, or nil
	shard  uint16    // index of its port
	conns  conn.Listener
	failed engine.Failure
	warned atomic.Bool // it was logged that keep-alive cannot be set

	inheritable atomic.Bool // connections inherit the options that setInheritable has set
	verified    atomic.Bool // one connection was asked for all options, and had them
}

// close closes the listener and ends its Serve.
func (l *listener) close(why error) {
	l.sock.Close()
	if l.of != nil {
		l.of.Close()
	}
	l.failed.Fail(why)
}

// isClosed reports whether the listener was closed.
func (l *listener) isClosed() bool {
	if l.of == nil {
		return engine.IsClosed(l.sock)
	}
	return l.of.Raw.Control(func(uintptr) {}) != nil
}

// acceptFrom accepts from a listener that wraps one of package net, by its own Accept, until that
// fails. The listener's Serve runs it.
func (s *server) acceptFrom(l *listener) error {
	var f engine.Failing
	for {
		nc, err := l.of.Accept()
		if err == nil {
			f = engine.Failing{}
			if err := s.admitWrapped(l, nc); err != nil {
				return err
			}
			continue
		}
		var e interface{ Temporary() bool }
		temporary := sock.IsExhausted(err) || errors.As(err, &e) && e.Temporary()
		if !temporary || s.isClosing() || l.isClosed() {
			return err
		}
		f.Again(&s.Journal, engine.CannotAccept, err)
	}
}

// admitWrapped adds a connection that a wrapper has accepted, or closes it. It returns an error if
// the connections of this listener cannot be served.
func (s *server) admitWrapped(l *listener, nc net.Conn) error {
	if !unwrap.Transparent(nc) {
		if nc != nil {
			nc.Close()
		}
		return engine.Invalid("%T accepts a %T, whose Read or Write may not be those of its socket",
			l.of.Listener, nc)
	}
	found, err := unwrap.Find(nc, nil)
	if err != nil {
		nc.Close()
		return engine.Invalid("connection: %v", err)
	}
	socket, err := sock.Detach(found.Conn, sock.MakeNonblocking)
	if err != nil { // such as too many descriptors
		nc.Close()
		s.Log(slog.LevelWarn, "cannot serve a connection", "err", err)
		return nil
	}
	c := s.admit(l, socket)
	if c == nil {
		nc.Close()
		return nil
	}
	if !found.Plain {
		c.SetWrapper(nc)
	}
	c.PostStart()
	return nil
}

// letAccept waits until the wrapper has accepted the connections in the backlog, but not for long,
// because it may limit their number.
func (l *listener) letAccept() {
	for end := time.Now().Add(engine.Tick); l.sock.Acceptable() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// setInheritable sets the options of a listener that its TCP connections should have. On Linux a
// connection inherits them, unless it was in the backlog before. TCP_NODELAY is set last. So a
// connection that has it, has all of them, if it inherits options at all (see hasInherited).
func (l *listener) setInheritable() {
	config := l.server.KeepAlive
	if runtime.GOOS != "linux" || !config.Enable {
		return
	}
	if on, err := l.sock.NoDelay(); on || err != nil || l.sock.SetKeepAlive(config) != nil {
		return // TCP_NODELAY was set before, and other options may have been set with it
	}
	l.inheritable.Store(l.sock.SetNoDelay(true) == nil)
}

// hasInherited reports whether a connection has inherited the listener's options. The first
// connection that seems to have them is asked for all, because MPTCP listeners differ in that from
// one version of the system to the next.
func (l *listener) hasInherited(c sock.Held) bool {
	if !l.inheritable.Load() || !c.TCP() {
		return false
	}
	if on, err := c.Socket().NoDelay(); !on || err != nil {
		return false
	}
	if l.verified.Load() {
		return true
	}
	want, err1 := l.sock.KeepAlive()
	got, err2 := c.Socket().KeepAlive()
	if got != want || err1 != nil || err2 != nil {
		l.inheritable.Store(false)
		return false
	}
	l.verified.Store(true)
	return true
}

// setOptions sets the options of a new TCP connection, unless it has inherited them. Errors are
// ignored: without TCP_NODELAY a connection is slower, and without keep-alive it takes longer to
// find that the peer is gone.
func (l *listener) setOptions(c sock.Held) {
	if l.hasInherited(c) {
		return
	}
	socket := c.Socket()
	socket.SetNoDelay(true)
	config := l.server.KeepAlive
	if !config.Enable {
		return
	}
	err := socket.SetKeepAlive(config)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) && !l.warned.Swap(true) {
		l.server.Log(slog.LevelWarn, "keep-alive not set", "err", err)
	}
}

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
