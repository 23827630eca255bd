package server

import (
	"crypto/tls"
	"sync/atomic"
	"time"

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
	failed chan error  // receives the error that ends Serve
	warned atomic.Bool // it was logged that keep-alive cannot be set

	inheritable atomic.Bool // connections inherit the options that setInheritable has set
	verified    atomic.Bool // one connection was asked for all options, and had them
}

func (l *listener) fail(err error) {
	select {
	case l.failed <- err:
	default: // it has an error already
	}
}

// close closes the listener and ends its Serve.
func (l *listener) close(why error) {
	l.sock.Close()
	if l.of != nil {
		l.of.Close()
	}
	l.fail(why)
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

// await waits until serving a socket has failed or ended, or the socket was closed.
func await(failed <-chan error, gone func() bool) error {
	clock := time.NewTicker(recheckInterval)
	defer clock.Stop()
	for {
		select {
		case err := <-failed:
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
