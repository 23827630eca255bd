package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// A listener is what Serve serves. Its key on the port is a connection without a socket.
type listener struct {
	server *server
	sock   *sock.Socket
	of     net.Listener // that sock is a duplicate of, or nil
	raw    syscall.RawConn
	key    conn
	tcp    bool
	tls    *tls.Config // nil without
	failed chan error  // its end
	warned atomic.Bool // that it cannot set an option

	inheritable atomic.Bool // connections begin with the listener's options
	verified    atomic.Bool // one was seen that did
}

func (l *listener) fail(err error) {
	select {
	case l.failed <- err:
	default: // it has failed already
	}
}

// close ends the listener and its Serve.
func (l *listener) close(why error) {
	l.sock.Close()
	if l.of != nil {
		l.of.Close()
	}
	l.fail(why)
}

// gone reports whether somebody has closed the listener.
func (l *listener) isClosed() bool {
	if l.of == nil {
		return isClosed(l.sock)
	}
	return l.raw.Control(func(uintptr) {}) != nil
}

func isClosed(s *sock.Socket) bool {
	held, err := s.Hold()
	if err == nil {
		held.Release()
	}
	return err != nil
}

// errClosedElsewhere is why serving a socket ends that somebody else has closed.
var errClosedElsewhere = fmt.Errorf("somebody has closed it: %w", net.ErrClosed)

// recheckInterval is how often a socket that is served is looked at, since one that is closed tells nobody.
const recheckInterval = 250 * time.Millisecond

// await waits for a failure of what is served, or for its end.
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

// nameOf is for errors.
func nameOf(s *sock.Socket) string {
	if a := s.LocalAddr(); a.IsValid() {
		return a.String()
	}
	return s.LocalPath()
}
