package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// accepts is how many accepts of a listener are outstanding where the system accepts ahead.
const accepts = 64

// ListenAndServe listens on an address, as net.Listen names it ("tcp", "tcp6", "unix"), and serves. The
// path of a Unix socket is removed in the end.
func (s *Server[S]) ListenAndServe(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Serve serves the connections of a TCP or Unix listener until Shutdown or Close, and then returns
// ErrServerClosed; or until the listener fails. It closes the listener in the end. If somebody else does, it
// ends with an error that is net.ErrClosed, within a second, and the connections that there are, and other
// listeners, are served on. Several listeners may be served at once, each by a Serve of its own. Where the system keeps
// the server from waiting for notifications for five seconds, each Serve returns the error, which is the cause that
// connections are closed with.
//
// Meanwhile nobody else may accept of it. On Linux a TCP listener is given the options that its
// connections are to begin with (TCP_NODELAY, KeepAlive).
func (s *Server[S]) Serve(l net.Listener) error { return s.serveListener(l, nil) }

// ServeSocket is Serve for a listening socket of package sock.
func (s *Server[S]) ServeSocket(socket *sock.Socket) error { return s.serve(socket, nil, nil) }

// serveListener serves by a duplicate, since a listener that is left open tells when its owner closes it.
func (s *Server[S]) serveListener(l net.Listener, config *tls.Config) error {
	if l == nil {
		return errNoSocket
	}
	defer l.Close()
	if _, ok := l.(syscall.Conn); !ok {
		return wrong("%T has no SyscallConn: Serve and ServeTLS take listeners of package net itself", l)
	}
	socket, err := sock.Dup(l, sock.MakeNonblocking)
	if err != nil {
		return err
	}
	return s.serve(socket, l, config)
}

// serve serves a socket, which is perhaps a duplicate of a listener's.
func (s *Server[S]) serve(socket *sock.Socket, of net.Listener, config *tls.Config) error {
	if socket == nil {
		return errNoSocket
	}
	defer socket.Close()
	l := &listener[S]{server: s, sock: socket, of: of, tcp: socket.LocalAddr().IsValid(), tls: config, failed: make(chan error, 1)}
	l.key.listener = l
	if of != nil {
		var err error
		if l.raw, err = of.(syscall.Conn).SyscallConn(); err != nil { // Dup has asked it, too
			return err
		}
	}
	if err := s.begin(l); err != nil {
		return err
	}
	if l.tcp {
		l.bequeath()
	}
	name := nameOf(socket)
	err := s.ports[l.key.port].Accept(socket, &l.key, accepts)
	if err == nil {
		err = await(l.failed, l.gone)
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

// begin starts the server, where it is the first listener's, and counts that in.
func (s *Server[S]) begin(l *listener[S]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	l.key.port = uint16(len(s.listeners) % len(s.ports))
	s.listeners[l] = struct{}{}
	return nil
}

// Shutdown ends the server gracefully. Listeners are closed, and the handler of every connection is given
// what has come, and then the end of the stream, as if the peer had ended it. So one that closes when the
// stream ends, or returns Read's io.EOF, closes idle connections at once and others when they have answered.
// Shutdown returns when all are closed and no worker is left.
//
// A connection that was accepted within the last five seconds, or waits for that, and has not sent anything to the
// handler yet has five seconds to do so, as with net/http; its stream ends when it was answered. Time in which a TLS
// handshake is made is part of these.
//
// When the context is done first, it does what Close does, waits for handlers to return all the same no
// longer, and returns the context's cause. A nil context is socknotify.ErrInvalid, and nothing is done.
func (s *Server[S]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	list, started := s.stop(nil)
	if !started {
		return nil
	}
	for _, c := range list {
		c.lastRequest()
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

// Close ends the server at once. Listeners are closed and connections shut, and what is queued is dropped;
// the handler's Close is called for each connection, with ErrServerClosed as cause, as soon as no other call
// of its handler is under way. Close does not wait for that; Shutdown after it does.
func (s *Server[S]) Close() error {
	s.end(ErrServerClosed)
	return nil
}

// end is Close for a cause.
func (s *Server[S]) end(cause error) {
	list, _ := s.stop(cause)
	for _, c := range list {
		c.mu.Lock()
		c.failLocked(cause, wAborting)
		if c.word.Load()&(wHijacked|wDead) == 0 {
			c.socket().Shutdown(sock.ShutBoth)
		}
		c.mu.Unlock()
	}
}

// lose ends the server because a port cannot be waited on. Each Serve returns the error.
func (s *Server[S]) lose(err error) {
	s.mu.Lock()
	again := s.cut || s.failure != nil
	if !again {
		s.failure = err
	}
	s.mu.Unlock()
	if again {
		return
	}
	s.log(slog.LevelError, "cannot wait for notifications, closing the server", "error", err)
	s.end(err)
}

// stop closes the listeners, and returns the connections that there are. With a cause it is at once: there will be no
// others. Without, what the listeners have accepted is taken in before.
func (s *Server[S]) stop(cause error) (list []*Conn[S], started bool) {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.cut = s.cut || cause != nil
	s.emptying = s.emptying || first && cause == nil
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, l := range listeners {
		if first && cause == nil {
			s.empty(l)
		}
		if first || cause != nil {
			l.close(cmp.Or(cause, ErrServerClosed))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.emptying = false
		if s.started {
			s.settle()
			go s.leave()
		}
	}
	return s.table.all(), s.started
}

// maxBacklog is how many connections of a listener are taken in at its end. There cannot be more, but for those that
// come while they are.
const maxBacklog = 1 << 16

// empty takes in what waits in the backlog of a listener, which would be reset when it is closed. The port has given
// what it has accepted to workers when it has forgotten the listener. A connection that comes between the last accept
// and the close is lost; so it is with every server that closes its listener.
func (s *Server[S]) empty(l *listener[S]) {
	if l.gone() {
		return
	}
	s.ports[l.key.port].Deregister(socknotify.Remove[*Conn[S]](l.sock)) // where it fails, workers accept until the close
	for range maxBacklog {
		socket, err := l.sock.Accept()
		if err != nil {
			return
		}
		if c := s.take(l, socket); c != nil {
			s.ports[c.port].Post(c, fresh)
		}
	}
}

// settle has the server end where nothing is left of it to serve. The server's lock is held.
func (s *Server[S]) settle() {
	if !s.closing || !s.started || s.emptying || s.table.n > 0 {
		return
	}
	var accepted uint64
	for _, p := range s.ports {
		accepted += p.Stats().Accepted
	}
	if s.handled.Load() < accepted {
		return // some are on their way to workers
	}
	s.cut = true
	select {
	case <-s.drained:
	default:
		close(s.drained)
	}
}

// graceTime is how long a connection has for its first request at the end.
const graceTime = 5 * time.Second

func (s *Server[S]) grace() time.Duration { return cmp.Or(s.graceTime, graceTime) }

// lastRequest ends a connection's stream at the end of the server, or lets it have its first request yet.
func (c *Conn[S]) lastRequest() {
	s := c.server()
	young := int64(int32(uint32(s.wheel.Now())-c.active.Load())) <= int64(s.wheel.Ticks(s.grace()))
	if young && c.word.Load()&wSpoke == 0 {
		// An answer to what the handler receives from here on meets the bit; one to what it received before may
		// have been sent by now.
		if c.word.Or(wGrace)&wSpoke == 0 {
			return
		}
		c.word.And(^uint32(wGrace))
	}
	c.set(wLast | wResumed)
}

// endGrace ends the stream of a connection that was answered, or has had its time.
func (c *Conn[S]) endGrace() {
	if c.word.And(^uint32(wGrace))&wGrace != 0 {
		c.set(wLast | wResumed)
	}
}

// endGrace ends the time for first requests.
func (s *Server[S]) endGrace() {
	s.mu.Lock()
	s.late = true
	list := s.table.all()
	s.mu.Unlock()
	for _, c := range list {
		c.endGrace()
	}
}

// leave waits for the last connection and ends the workers.
func (s *Server[S]) leave() {
	<-s.drained
	for _, p := range s.ports {
		p.Close()
	}
	s.running.Wait()
	s.quotas.end()
	s.wheel.Close()
	close(s.stopped)
}

// isClosing reports whether Shutdown or Close was called.
func (s *Server[S]) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}
