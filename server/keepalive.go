package server

import (
	"errors"
	"log/slog"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

// keepAlive is what the fields mean, as those of net.ListenConfig do.
func (s *server) keepAlive() net.KeepAliveConfig {
	if !s.KeepAliveConfig.Enable && s.KeepAlive >= 0 {
		return net.KeepAliveConfig{Enable: true, Idle: s.KeepAlive}
	}
	return s.KeepAliveConfig
}

// bequeath sets a listener's options to those that its connections of TCP want, which begin with them on Linux. What
// was connected before does not. So TCP_NODELAY comes last: a connection that begins with it has the others, unless
// that is not so at all (see inherits).
func (l *listener) setInheritable() {
	config := l.server.keepAlive()
	if runtime.GOOS != "linux" || !config.Enable {
		return
	}
	if on, err := l.sock.NoDelay(); on || err != nil || l.sock.SetKeepAlive(config) != nil {
		return // somebody else has set it, perhaps with other options
	}
	l.inheritable.Store(l.sock.SetNoDelay(true) == nil)
}

// inherits reports whether a connection has begun with the listener's options. The first that seems to is asked for
// all of them: the listener may be of MPTCP, and these change from one version of the system to the next.
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

// tune sets the options of a new TCP connection, if it has not begun with them. What fails makes it slower at worst, or
// found dead later.
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
		l.server.log(slog.LevelWarn, "keep-alive not set", "error", err)
	}
}

// keepOn is for a net.Conn of the socket, for which package net has set its own.
func (s *server) restoreKeepAlive(nc net.Conn) {
	if c, ok := nc.(*net.TCPConn); ok {
		c.SetKeepAliveConfig(s.keepAlive()) // as good as it was before
	}
}
