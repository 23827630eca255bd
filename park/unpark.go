package park

import (
	"net"
	"sync/atomic"
	"syscall"

	"github.com/socknotify/socknotify"
)

// Unpark takes a connection back. It reports whether it was parked; then its function does not run for that
// parking, and the connection is the caller's. Otherwise it was not parked, or its function has begun.
//
// A connection that was parked as what it is, without [Wrap], and of which bytes were read ahead, counts as one
// whose function has begun: the bytes are in the [*Conn] that only the function is given. Unpark of that Conn, or of
// a Conn that was parked, takes the connection back with its bytes.
//
// A connection that is not parked stays known to the lot, and to its port, until it is closed. Unpark ends
// that too, as must be before another lot or port can have it.
func (l *Lot) Unpark(conn net.Conn) bool {
	base, _, err := descend(conn)
	if err != nil {
		return false
	}
	var was, here bool
	raw, err := base.SyscallConn()
	if err == nil {
		err = raw.Control(func(number uintptr) {
			place := l.spots.at(number)
			if s := l.spots.of(place, base); s != nil {
				was = l.remove(s, conn, place, number)
			}
			here = true
		})
	}
	if err != nil && !here { // it is closed
		if s := l.search(base); s != nil && !s.hides(conn) {
			was = l.withdraw(s)
		}
	}
	if was {
		l.leave()
	}
	return was
}

// remove takes a spot out of table and port, inside Control, for a caller who has conn. It reports whether it was
// parked.
func (l *Lot) remove(s *spot, conn net.Conn, place *atomic.Pointer[spot], number uintptr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == gone {
		return false // and the number may have another spot
	}
	s.still()
	if s.hidden(conn) {
		return false // its function is to run
	}
	was := s.occupied()
	if was {
		l.vacate(s)
	}
	// One parking in it would be registered afresh, so no one may meanwhile.
	s.state = gone
	l.port.Deregister(socknotify.Registration[*spot]{Handle: number})
	l.spots.put(place, s, nil)
	return was
}

// hidden reports whether the function of a parked connection is to be given bytes that a caller who has only conn
// could not read. s.mu is held.
func (s *spot) hidden(conn net.Conn) bool {
	c, ok := s.conn.(*Conn)
	return ok && net.Conn(c) != conn && c.holds()
}

func (s *spot) hides(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hidden(conn)
}

// CloseConn closes a connection. If it is parked its function runs at once, for which Read fails with
// net.ErrClosed. A parked connection whose Close method is called instead is found within ten seconds.
func (l *Lot) CloseConn(conn net.Conn) error {
	if conn == nil {
		return notNil(false)
	}
	s := l.find(conn)
	err := conn.Close()
	if s != nil {
		l.dispatch(s, readable)
	}
	return err
}

// find finds the spot of a connection, or nil.
func (l *Lot) find(conn net.Conn) (found *spot) {
	base, _, err := descend(conn)
	if err != nil {
		return nil
	}
	if raw, err := base.SyscallConn(); err == nil {
		err = raw.Control(func(number uintptr) { found = l.spots.of(l.spots.at(number), base) })
		if err == nil {
			return found
		}
	}
	return l.search(base)
}

// search finds the spot of a connection that is closed.
func (l *Lot) search(base syscall.Conn) (found *spot) {
	l.spots.all(func(s *spot) {
		if s.base == base {
			found = s
		}
	})
	return found
}
