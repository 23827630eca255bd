//go:build unix && !linux

package unixsock

import "github.com/socknotify/socknotify/internal/backend"

// Look polls one socket and peeks into it.
func Look(handle uintptr) backend.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	m := polled(fd)
	if m&backend.In == 0 {
		return m
	}
	// Where a receive cannot tell, it is a listener, and poll(2) is right.
	if p, sure := Pending(fd); sure {
		m = m&^backend.In | p
	}
	if m&(backend.Dead|backend.In) == backend.Dead|backend.In {
		m |= backend.PeerClosed // what was never started has nothing to receive
	}
	return m
}
