package engine

import (
	"fmt"
	"net"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// recheckInterval is the interval at which a served socket is checked, because its closing causes
// no notification.
const recheckInterval = 250 * time.Millisecond

// ErrClosedElsewhere is the error of Serve for a listener or a socket that was closed, but not by
// the server.
var ErrClosedElsewhere = fmt.Errorf("closed while it was served: %w", net.ErrClosed)

// A Failure receives the error that ends Serve for a socket. It has room for one.
type Failure chan error

// Fail sends an error, unless there is one already.
func (f Failure) Fail(err error) {
	select {
	case f <- err:
	default:
	}
}

// Await waits until serving a socket has failed or ended, or the socket was closed.
func (f Failure) Await(gone func() bool) error {
	clock := time.NewTicker(recheckInterval)
	defer clock.Stop()
	for {
		select {
		case err := <-f:
			return err
		case <-clock.C:
			if gone() {
				return ErrClosedElsewhere
			}
		}
	}
}

// NameOf names a socket in errors.
func NameOf(s *sock.Socket) string {
	if a := s.LocalAddr(); a.IsValid() {
		return a.String()
	}
	return s.LocalPath()
}

// IsClosed reports whether a socket was closed.
func IsClosed(s *sock.Socket) bool {
	held, err := s.Hold()
	if err == nil {
		held.Release()
	}
	return err != nil
}
