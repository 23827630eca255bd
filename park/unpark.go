package park

import (
	"net"
	"syscall"
)

// Unpark takes a connection back. It reports whether it was parked; then its function does not run for that
// parking, and the connection is the caller's. Otherwise it was not parked, or its function has begun.
func (l *Lot) Unpark(conn net.Conn) bool {
	s := l.find(conn)
	if s == nil || !l.withdraw(s) {
		return false
	}
	l.leave()
	return true
}

// CloseConn closes a connection. If it is parked its function runs at once, for which Read fails with
// net.ErrClosed. A parked connection whose Close method is called instead is found within ten seconds.
func (l *Lot) CloseConn(conn net.Conn) error {
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
		err = raw.Control(func(number uintptr) { found = l.spots.at(number).Load() })
		if err == nil {
			if found != nil && found.base != base {
				return nil
			}
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
