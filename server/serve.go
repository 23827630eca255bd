package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"

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
// listeners, are served on. Several listeners may be served at once, each by a Serve of its own.
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
	s.mu.Lock()
	if err := s.start(); err != nil {
		s.mu.Unlock()
		return err
	}
	l.key.port = uint16(len(s.listeners) % len(s.ports))
	s.listeners[l] = struct{}{}
	s.mu.Unlock()

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
	if s.closing {
		return ErrServerClosed
	}
	return fmt.Errorf("server: listener on %s: %w", name, err)
}

// Shutdown ends the server gracefully. Listeners are closed, and the handler of every connection is given
// what has come, and then the end of the stream, as if the peer had ended it. So one that closes when the
// stream ends, or returns Read's io.EOF, closes idle connections at once and others when they have answered.
// Shutdown returns when all are closed and no worker is left.
//
// When the context is done first, it does what Close does, waits for handlers to return all the same no
// longer, and returns the context's cause. A nil context is socknotify.ErrInvalid, and nothing is done.
func (s *Server[S]) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	list, started := s.stop()
	if !started {
		return nil
	}
	for _, c := range list {
		c.set(wLast | wResumed)
	}
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
	}
	s.Close()
	return context.Cause(ctx)
}

// Close ends the server at once. Listeners are closed and connections shut, and what is queued is dropped;
// the handler's Close is called for each connection, with ErrServerClosed as cause, as soon as no other call
// of its handler is under way. Close does not wait for that; Shutdown after it does.
func (s *Server[S]) Close() error {
	list, _ := s.stop()
	for _, c := range list {
		c.mu.Lock()
		c.failLocked(ErrServerClosed, wAborting)
		if c.word.Load()&(wHijacked|wDead) == 0 {
			c.socket().Shutdown(sock.ShutBoth)
		}
		c.mu.Unlock()
	}
	return nil
}

// stop closes the listeners, and returns the connections that there are. There will be no others.
func (s *Server[S]) stop() (list []*Conn[S], started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		for l := range s.listeners {
			l.sock.Close()
			if l.of != nil {
				l.of.Close()
			}
			l.fail(ErrServerClosed)
		}
		if s.started {
			if s.table.n == 0 {
				close(s.drained)
			}
			go s.leave()
		}
	}
	return s.table.all(), s.started
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
