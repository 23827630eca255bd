package server

import (
	"errors"
	"log/slog"
	"net"
	"runtime"

	"github.com/socknotify/socknotify/sock"
)

// keepAlive is what the fields mean, as those of net.ListenConfig do.
func (s *Server[S]) keepAlive() net.KeepAliveConfig {
	if !s.KeepAliveConfig.Enable && s.KeepAlive >= 0 {
		return net.KeepAliveConfig{Enable: true, Idle: s.KeepAlive}
	}
	return s.KeepAliveConfig
}

// bequeath sets a listener's options to those that its connections want, which begin with them on Linux (of MPTCP, not
// with all of them). What was connected before does not. So TCP_NODELAY comes last: a connection that begins with it
// has the others.
func (l *listener[S]) bequeath() {
	config := l.server.keepAlive()
	held, err := l.sock.Hold()
	if err != nil {
		return
	}
	defer held.Release()
	if runtime.GOOS != "linux" || !held.TCP() || !config.Enable {
		return
	}
	if on, err := l.sock.NoDelay(); on || err != nil || l.sock.SetKeepAlive(config) != nil {
		return // somebody else has set it, perhaps with other options
	}
	l.bequeaths = l.sock.SetNoDelay(true) == nil
}

// tune sets the options of a new TCP connection, if it has not begun with them. What fails makes it slower at worst, or
// found dead later.
func (l *listener[S]) tune(socket *sock.Socket) {
	if l.bequeaths {
		if on, err := socket.NoDelay(); on && err == nil {
			return
		}
	}
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
func (s *Server[S]) keepOn(nc net.Conn) {
	if c, ok := nc.(*net.TCPConn); ok {
		c.SetKeepAliveConfig(s.keepAlive()) // as good as it was before
	}
}
