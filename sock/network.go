package sock

import (
	"fmt"
	"net/netip"
	"os"
)

// Network names the sockets that can be made.
type Network int

// The networks.
const (
	TCP4 Network = iota
	TCP6
	UDP4
	UDP6
	Unix         // a stream
	UnixDatagram // keeps the bounds of messages
)

func (n Network) stream() bool { return n == TCP4 || n == TCP6 || n == Unix }
func (n Network) tcp() bool    { return n == TCP4 || n == TCP6 }

// String is the network's name as package net spells it.
func (n Network) String() string {
	names := [...]string{"tcp4", "tcp6", "udp4", "udp6", "unix", "unixgram"}
	if n < 0 || int(n) >= len(names) {
		return "invalid"
	}
	return names[n]
}

// NetworkOf chooses between two networks by the kind of an address, such as TCP4 and TCP6.
func NetworkOf(a netip.AddrPort, four, six Network) Network {
	if a.Addr().Is4() {
		return four
	}
	return six
}

// Loopback is 127.0.0.1 with a port that the system chooses, and Loopback6 is ::1.
var (
	Loopback  = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	Loopback6 = netip.AddrPortFrom(netip.IPv6Loopback(), 0)
)

// New makes an unbound socket. On a TCP6 or UDP6 socket, [Socket.SetDualStack] says whether IPv4 may come
// in too.
func New(n Network) (*Socket, error) {
	if n < TCP4 || n > UnixDatagram {
		return nil, &Error{"socket", ^uintptr(0), fmt.Errorf("%w: Network(%d)", os.ErrInvalid, int(n))}
	}
	h, err := sysSocket(n)
	if err != nil {
		return nil, &Error{"socket", ^uintptr(0), err}
	}
	return adopt(h, n.stream(), n.tcp()), nil
}

// Bind gives the socket a local address.
func (s *Socket) Bind(a netip.AddrPort) error {
	return called(s.do("bind", func(h uintptr) error { return sysBind(h, a) }), a)
}

// BindUnix gives a Unix socket a path, or on Linux an abstract name, which begins with @.
func (s *Socket) BindUnix(path string) error {
	return called(s.do("bind", func(h uintptr) error { return sysBindUnix(h, path) }), path)
}

// Connect starts to connect. nil says that it has connected, ErrWouldBlock that it is under way:
// EventOut will say when it is done, EventErr that it has failed. On a datagram socket it sets the peer.
func (s *Socket) Connect(a netip.AddrPort) error {
	return called(s.do("connect", func(h uintptr) error { return sysConnect(h, a) }), a)
}

// ConnectUnix connects a Unix socket. ErrWouldBlock says that the listener's backlog is full; the system
// does not tell when it no longer is, so try again later.
func (s *Socket) ConnectUnix(path string) error {
	return called(s.do("connect", func(h uintptr) error { return sysConnectUnix(h, path) }), path)
}

// called puts the address of a call that failed into its error.
func called[A any](err error, addr A) error {
	if e, ok := err.(*Error); ok && e.Handle != ^uintptr(0) {
		e.Err = fmt.Errorf("%v: %w", addr, e.Err)
	}
	return err
}

// LocalAddr is the bound address of a TCP or UDP socket, or the zero AddrPort.
func (s *Socket) LocalAddr() netip.AddrPort { return s.addr(sysLocalAddr) }

// RemoteAddr is the address of the peer of a TCP or UDP socket, or the zero AddrPort.
func (s *Socket) RemoteAddr() netip.AddrPort { return s.addr(sysRemoteAddr) }

// LocalPath is the path or abstract name that a Unix socket is bound to, or "".
func (s *Socket) LocalPath() string {
	h, ok := s.fd.Use()
	if !ok {
		return ""
	}
	defer s.fd.Done()
	return sysLocalPath(h)
}

func (s *Socket) addr(get func(h uintptr) netip.AddrPort) netip.AddrPort {
	h, ok := s.fd.Use()
	if !ok {
		return netip.AddrPort{}
	}
	defer s.fd.Done()
	return get(h)
}

// do is a call that is not on anybody's hot path.
func (s *Socket) do(op string, f func(h uintptr) error) error {
	h, ok := s.fd.Use()
	if !ok {
		return closed(op)
	}
	defer s.fd.Done()
	switch err := f(h); err {
	case nil, ErrWouldBlock:
		return err
	default:
		return &Error{op, h, err}
	}
}
