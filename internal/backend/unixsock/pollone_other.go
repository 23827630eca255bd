//go:build unix && !linux

package unixsock

import "github.com/socknotify/socknotify/internal/backend"

// PollOne polls one socket, peeks at its input, and returns the conditions that hold.
func PollOne(handle uintptr) backend.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	m := polled(fd)
	if m&backend.In == 0 {
		return m
	}
	// If a receive gives no answer, the socket is a listener, and poll(2) is right about it.
	if p, sure := Pending(fd); sure {
		m = m&^backend.In | p
	}
	if m&(backend.Dead|backend.In) == backend.Dead|backend.In {
		m |= backend.PeerClosed // a stream that was never started has nothing to receive
	}
	return m
}
