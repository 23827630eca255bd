package server

import (
	"errors"
	"log/slog"
	"net"

	"github.com/socknotify/socknotify/sock"
)

// keepAlive is what the fields mean, as those of net.ListenConfig do.
func (s *Server[S]) keepAlive() net.KeepAliveConfig {
	if !s.KeepAliveConfig.Enable && s.KeepAlive >= 0 {
		return net.KeepAliveConfig{Enable: true, Idle: s.KeepAlive}
	}
	return s.KeepAliveConfig
}

// tune sets the options of a new TCP connection. What fails makes it slower at worst, or found dead later.
func (l *listener[S]) tune(socket *sock.Socket) {
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
