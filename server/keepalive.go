package server

import (
	"errors"
	"log/slog"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

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
