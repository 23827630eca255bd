package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// accepts is the number of outstanding accepts of a listener, on systems that accept ahead.
const accepts = 64

// serveListener serves a duplicate of the listener's socket. The listener itself is left open,
// because then it can be asked whether its owner has closed it.
func (s *server) serveListener(c config, l net.Listener) error {
	if l == nil {
		return engine.ErrNoSocket
	}
	found, err := unwrap.FindListener(l)
	if errors.Is(err, unwrap.ErrNil) {
		return engine.ErrNoSocket
	}
	defer l.Close()
	if err != nil {
		return engine.Invalid("listener: %v", err)
	}
	socket, err := sock.Dup(found.Conn, sock.MakeNonblocking)
	if err != nil {
		return err
	}
	return s.serve(c, socket, &original{l, found})
}

// An original is a listener that a duplicate is served of.
type original struct {
	net.Listener
	unwrap.Listening
}

// serve serves a socket. of is the listener that the socket is a duplicate of, or nil.
func (s *server) serve(c config, socket *sock.Socket, of *original) error {
	if socket == nil {
		return engine.ErrNoSocket
	}
	defer socket.Close()
	if c.err != nil {
		return c.err
	}
	l := &listener{server: s, sock: socket, of: of, failed: make(engine.Failure, 1)}
	l.conns.TCP, l.conns.TLS = socket.LocalAddr().IsValid(), c.tls
	l.conns.Init(&s.Shared, l.accepted)
	if err := s.begin(c, l); err != nil {
		return err
	}
	name := engine.NameOf(socket)
	var err error
	if of != nil && !of.Plain {
		err = s.acceptFrom(l)
	} else {
		if l.conns.TCP {
			l.setInheritable()
		}
		if err = s.Ports[l.shard].Accept(socket, l.conns.Key(), accepts); err == nil {
			err = l.failed.Await(l.isClosed)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, l)
	switch {
	case s.failure != nil:
		err = s.failure
	case s.closing:
		return ErrServerClosed
	}
	return fmt.Errorf("server: listener on %s: %w", name, err)
}

// begin starts the server, if this is the first listener, and adds the listener.
func (s *server) begin(c config, l *listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(c); err != nil {
		return err
	}
	l.conns.Preamble = s.opts.Preamble != nil
	l.shard = uint16(len(s.listeners) % len(s.Ports))
	s.listeners[l] = struct{}{}
	return nil
}

func (s *server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return engine.ErrNoContext
	}
	list, started := s.stop(nil)
	if !started {
		return nil
	}
	for _, c := range list {
		c.LastRequest(s.grace())
	}
	grace := time.NewTimer(s.grace())
	defer grace.Stop()
	for {
		select {
		case <-s.stopped:
			return nil
		case <-grace.C:
			s.endGrace()
		case <-ctx.Done():
			s.Close()
			return context.Cause(ctx)
		}
	}
}

func (s *server) Close() error {
	s.end(ErrServerClosed)
	return nil
}

// end is Close with a cause.
func (s *server) end(cause error) {
	list, _ := s.stop(cause)
	for _, c := range list {
		c.EndByServer(cause)
	}
}

// stop closes the listeners, and returns the connections. With a cause it does so at once, and no
// connections are added after. Without a cause it adds the connections in the backlogs first.
func (s *server) stop(cause error) (list []*conn.Conn, started bool) {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.refusing = s.refusing || cause != nil
	s.acceptingBacklog = s.acceptingBacklog || first && cause == nil
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, l := range listeners {
		if first && cause == nil {
			s.acceptBacklog(l)
		}
		if first || cause != nil {
			l.close(cmp.Or(cause, ErrServerClosed))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.acceptingBacklog = false
		if s.started {
			s.checkDrained()
			go s.stopWhenDrained()
		}
	}
	return slices.Clone(s.table), s.started
}

// maxBacklog bounds the number of connections that are accepted from a listener's backlog at the
// end. A backlog is not longer, but new connections may arrive in it.
const maxBacklog = 1 << 16

// acceptBacklog adds the connections in a listener's backlog, because the system resets them when
// the listener is closed. The listener is removed from its port first; connections that the port
// has accepted by then are dequeued by workers. A connection that arrives between the last accept
// and the close is lost, as with every server that closes its listener.
func (s *server) acceptBacklog(l *listener) {
	if l.isClosed() {
		return
	}
	if l.of != nil && !l.of.Plain {
		l.letAccept()
		return
	}
	// If this fails, workers accept until the close.
	s.Ports[l.shard].Deregister(socknotify.Remove[*Key](l.sock))
	for range maxBacklog {
		socket, err := l.sock.Accept()
		if err != nil {
			return
		}
		if c := s.admit(l, socket); c != nil {
			c.PostStart()
		}
	}
}

// checkDrained closes drained if the server is closing and has nothing left to serve. The server's
// lock is held.
func (s *server) checkDrained() {
	if !s.closing || !s.started || s.acceptingBacklog || len(s.table) > 0 {
		return
	}
	var accepted uint64
	for _, p := range s.Ports {
		accepted += p.Stats().Accepted
	}
	if s.handled.Load() < accepted {
		return // workers have not handled all accepted connections
	}
	s.refusing = true
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

// grace is the time that a connection has for its first request during Shutdown.
func (s *server) grace() time.Duration { return cmp.Or(s.graceTime, serving.FirstRequestTime) }

// endGrace ends the time for first requests of all connections.
func (s *server) endGrace() {
	s.mu.Lock()
	s.graceOver = true
	list := slices.Clone(s.table)
	s.mu.Unlock()
	for _, c := range list {
		c.EndGrace()
	}
}

// stopWhenDrained waits for the end of the last connection, and then for that of the workers.
func (s *server) stopWhenDrained() {
	<-s.drained
	for _, p := range s.allPorts() {
		p.Close()
	}
	s.Running.Wait()
	s.Lines.Flush()
	s.Wheel.Close()
	close(s.stopped)
}

// isClosing reports whether Shutdown or Close was called.
func (s *server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// ready reports whether a listener is served and the server is not closing.
func (s *server) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closing && len(s.listeners) > 0
}

func (s *server) allPorts() []*socknotify.Port[*Key] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.Ports)
}
