package server

import (
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/unwrap"
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
