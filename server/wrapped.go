package server

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/unwrap"
	"github.com/socknotify/socknotify/sock"
)

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
