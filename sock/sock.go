// Package sock is small non-blocking sockets: what a handler calls after a notification.
//
// No call here blocks. One that cannot go on returns [ErrWouldBlock], a value that allocates nothing.
// The sockets are not watched by Go's own poller; give their Handle to a socknotify port. One
// goroutine at a time may receive from a socket and one may send; Close must not run beside either.
//
// The package covers what the port's own examples and tests need, on Linux so far.
package sock

import (
	"errors"
	"net/netip"
)

// ErrWouldBlock says that the call cannot go on now: wait for EventIn or EventOut.
var ErrWouldBlock = errors.New("sock: operation would block")

// A Socket is one non-blocking socket. The zero value is not usable.
type Socket struct {
	fd int
}

// Network names the sockets that can be made.
type Network int

// The networks.
const (
	TCP4 Network = iota
	TCP6
	UDP4
	UDP6
)

// How names the directions of Shutdown.
type How int

// The directions.
const (
	ShutRead How = iota
	ShutWrite
	ShutBoth
)

// Handle is what a registration's Socket takes.
func (s *Socket) Handle() uintptr { return uintptr(s.fd) }

// LocalAddr is the bound address of a TCP or UDP socket, or the zero AddrPort.
func (s *Socket) LocalAddr() netip.AddrPort { return s.localAddr() }

// Loopback is 127.0.0.1 with a port that the system chooses.
var Loopback = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
