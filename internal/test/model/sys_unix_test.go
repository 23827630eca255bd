//go:build unix

package model

import (
	"net/netip"

	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/sock"
)

// poll asks the system, without waiting.
func poll(fd int) (s state) {
	now := sockettest.Now(fd)
	for _, t := range [...]struct {
		held sockettest.State
		is   state
	}{
		{sockettest.In, stateIn}, {sockettest.Out, stateOut}, {sockettest.Urgent, stateUrgent},
		{sockettest.Err, stateErr}, {sockettest.PeerClosed, stateEnded}, {sockettest.Dead, stateDead},
	} {
		if now&t.held != 0 {
			s |= t.is
		}
	}
	return s
}

func sendUrgent(fd uintptr) error { return sockettest.SendUrgent(fd, 1) }

// source returns the address that a connection is made from.
func source() netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4(sockettest.Source()), 0) }

// spare makes a bound socket use up no port of its own.
func spare(s *sock.Socket) { check(sockettest.BindTo(s.Handle())) }

// base is where the sockets' own numbers begin, so that no other descriptor of the process comes to
// lie among them.
const base = 400

const noSocket = base + 5000 // no descriptor

// moved makes the lowest free number name a socket, too.
func moved(fd uintptr, _ int) int { return must(sockettest.Dup(fd, base)) }

// duplicate makes another number name a socket.
func duplicate(fd uintptr) uintptr { return uintptr(must(sockettest.Dup(fd, 0))) }

// replaced makes a number name a socket instead of the one that it names.
func replaced(num int, fd uintptr) int {
	check(sockettest.Become(num, fd))
	return num
}

// occupy has nothing to do: no other descriptor gets so high.
func occupy(int) (letGo func()) { return nil }

// countEach says that descriptors are quick to count.
const countEach = true
