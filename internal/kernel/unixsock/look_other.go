//go:build unix && !linux

package unixsock

import "github.com/socknotify/socknotify/internal/kernel"

// Look polls one socket and peeks into it.
func Look(handle uintptr) kernel.Mask {
	fd, ok := FD(handle)
	if !ok {
		return 0
	}
	m := polled(fd)
	if m&kernel.In == 0 {
		return m
	}
	// Where a receive cannot tell, it is a listener, and poll(2) is right.
	if p, sure := Pending(fd); sure {
		m = m&^kernel.In | p
	}
	if m&(kernel.Dead|kernel.In) == kernel.Dead|kernel.In {
		m |= kernel.PeerClosed // what was never started has nothing to receive
	}
	return m
}
