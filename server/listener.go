package server

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/unwrap"
	"github.com/socknotify/socknotify/sock"
)

// A listener is a listening socket that is served. Its key on the port is the address of key, a conn without a socket.
type listener struct {
	server *server
	sock   *sock.Socket
	of     *original // that sock is a duplicate of, or nil
	key    conn
	tcp    bool
	tls    *tls.Config // nil without TLS
	failed failure
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
	l.failed.fail(why)
}

// isClosed reports whether the listener was closed.
func (l *listener) isClosed() bool {
	if l.of == nil {
		return isClosed(l.sock)
	}
	return l.of.Raw.Control(func(uintptr) {}) != nil
}

func isClosed(s *sock.Socket) bool {
	held, err := s.Hold()
	if err == nil {
		held.Release()
	}
	return err != nil
}

// recheckInterval is the interval at which a served socket is checked, because its closing causes no notification.
const recheckInterval = 250 * time.Millisecond

// A failure receives the error that ends Serve for a socket. It has room for one.
type failure chan error

func (f failure) fail(err error) {
	select {
	case f <- err:
	default: // it has an error already
	}
}

// await waits until serving a socket has failed or ended, or the socket was closed.
func (f failure) await(gone func() bool) error {
	clock := time.NewTicker(recheckInterval)
	defer clock.Stop()
	for {
		select {
		case err := <-f:
			return err
		case <-clock.C:
			if gone() {
				return errClosedElsewhere
			}
		}
	}
}

// nameOf names a socket in errors.
func nameOf(s *sock.Socket) string {
	if a := s.LocalAddr(); a.IsValid() {
		return a.String()
	}
	return s.LocalPath()
}

// The pause between two attempts of an Accept that fails doubles from firstPause to acceptPause.
const acceptPause = time.Second

// acceptFrom accepts from a listener that wraps one of package net, by its own Accept, until that fails. The listener's
// Serve runs it.
func (s *server) acceptFrom(l *listener) error {
	pause := firstPause
	for {
		nc, err := l.of.Accept()
		if err != nil {
			var e interface{ Temporary() bool }
			if s.isClosing() || l.isClosed() || !sock.IsExhausted(err) && !(errors.As(err, &e) && e.Temporary()) {
				return err
			}
			s.log(slog.LevelWarn, "cannot accept, trying again", "err", err, "retry_in", pause)
			select {
			case err := <-l.failed:
				return err
			case <-time.After(pause):
			}
			pause = min(2*pause, acceptPause)
			continue
		}
		pause = firstPause
		if err := s.admitWrapped(l, nc); err != nil {
			return err
		}
	}
}

// admitWrapped adds a connection that a wrapper has accepted, or closes it. It returns an error if the connections of this
// listener cannot be served.
func (s *server) admitWrapped(l *listener, nc net.Conn) error {
	if !unwrap.Transparent(nc) {
		if nc != nil {
			nc.Close()
		}
		return invalid("%T accepts a %T, whose Read or Write may not be those of its socket", l.of.Listener, nc)
	}
	found, err := unwrap.Find(nc, nil)
	if err != nil {
		nc.Close()
		return invalid("connection: %v", err)
	}
	socket, err := sock.Detach(found.Conn, sock.MakeNonblocking)
	if err != nil { // such as too many descriptors
		nc.Close()
		s.log(slog.LevelWarn, "cannot serve a connection", "err", err)
		return nil
	}
	c := s.admit(l, socket)
	if c == nil {
		nc.Close()
		return nil
	}
	if !found.Plain {
		c.mu.Lock()
		c.ensureExtra().wrapper = nc
		c.mu.Unlock()
	}
	s.shards[c.shard].Post(c.key(), admitted)
	return nil
}

// letAccept waits until the wrapper has accepted the connections in the backlog, but not for long, because it may limit
// their number.
func (l *listener) letAccept() {
	for end := time.Now().Add(tick); l.sock.Acceptable() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// keepAlive returns the settings that KeepAlive and KeepAliveConfig stand for, as in net.ListenConfig.
func (s *server) keepAlive() net.KeepAliveConfig {
	if !s.KeepAliveConfig.Enable && s.KeepAlive >= 0 {
		return net.KeepAliveConfig{Enable: true, Idle: s.KeepAlive}
	}
	return s.KeepAliveConfig
}

// setInheritable sets the options of a listener that its TCP connections should have. On Linux a connection inherits
// them, unless it was in the backlog before. TCP_NODELAY is set last. So a connection that has it, has all of them, if
// it inherits options at all (see hasInherited).
func (l *listener) setInheritable() {
	config := l.server.keepAlive()
	if runtime.GOOS != "linux" || !config.Enable {
		return
	}
	if on, err := l.sock.NoDelay(); on || err != nil || l.sock.SetKeepAlive(config) != nil {
		return // TCP_NODELAY was set before, and other options may have been set with it
	}
	l.inheritable.Store(l.sock.SetNoDelay(true) == nil)
}

// hasInherited reports whether a connection has inherited the listener's options. The first connection that seems to have
// them is asked for all, because MPTCP listeners differ in that from one version of the system to the next.
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

// setOptions sets the options of a new TCP connection, unless it has inherited them. Errors are ignored: without
// TCP_NODELAY a connection is slower, and without keep-alive it takes longer to find that the peer is gone.
func (l *listener) setOptions(c sock.Held) {
	if l.hasInherited(c) {
		return
	}
	socket := c.Socket()
	socket.SetNoDelay(true)
	config := l.server.keepAlive()
	if !config.Enable {
		return
	}
	err := socket.SetKeepAlive(config)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) && !l.warned.Swap(true) {
		l.server.log(slog.LevelWarn, "keep-alive not set", "err", err)
	}
}

// restoreKeepAlive sets the server's keep-alive on a net.Conn, for which package net has set its default.
func (s *server) restoreKeepAlive(nc net.Conn) {
	if c, ok := nc.(*net.TCPConn); ok {
		c.SetKeepAliveConfig(s.keepAlive()) // errors are ignored, as in setOptions
	}
}
