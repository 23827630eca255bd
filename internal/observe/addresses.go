package observe

import (
	"fmt"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Addresses returns the addresses of a registration's socket. The error is ErrNotRegistered if h has
// another record, or none.
func Addresses(p *port.Port, h port.Socket, rec *port.Record) (names sock.Names, err error) {
	ended, err := p.WithHandle(h, rec, func(h port.Socket) (err error) {
		names, err = sock.NamesOf(h)
		return err
	})
	if ended {
		err = &addressError{h, err}
	}
	if err != nil {
		return sock.Names{}, err
	}
	return names, nil
}

// An addressError says why the socket of a registration that has ended has no addresses.
type addressError struct {
	socket port.Socket
	why    error // or nil
}

func (e *addressError) Error() string {
	return fmt.Sprintf("socknotify: addresses of socket %d", e.socket) + port.Causes(port.ErrNotRegistered, e.why)
}

func (e *addressError) Unwrap() []error { return port.Both(port.ErrNotRegistered, e.why) }
