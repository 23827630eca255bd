package sock

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
)

// Network is a kind of socket.
type Network int

// The networks.
const (
	TCP4 Network = iota
	TCP6
	UDP4
	UDP6
	Unix         // Unix stream socket
	UnixDatagram // Unix datagram socket
)

func (n Network) stream() bool { return n == TCP4 || n == TCP6 || n == Unix }
func (n Network) tcp() bool    { return n == TCP4 || n == TCP6 }

// String returns package net's name of the network.
func (n Network) String() string {
	names := [...]string{"tcp4", "tcp6", "udp4", "udp6", "unix", "unixgram"}
	if n < 0 || int(n) >= len(names) {
		return "invalid"
	}
	return names[n]
}

// NetworkOf returns four if a is an IPv4 address, and six otherwise. For example, NetworkOf(a, TCP4, TCP6) is the TCP
// network of a.
func NetworkOf(a netip.AddrPort, four, six Network) Network {
	if a.Addr().Is4() {
		return four
	}
	return six
}

// Loopback is 127.0.0.1 and Loopback6 is ::1, both with port 0, for which the system chooses a port.
var (
	Loopback  = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	Loopback6 = netip.AddrPortFrom(netip.IPv6Loopback(), 0)
)

// New returns an unbound socket. For a TCP6 or UDP6 socket, [Socket.SetDualStack] selects whether it accepts IPv4 too.
func New(n Network) (*Socket, error) {
	if n < TCP4 || n > UnixDatagram {
		return nil, &Error{"socket", ^uintptr(0), fmt.Errorf("%w: Network(%d)", os.ErrInvalid, int(n))}
	}
	h, err := sysSocket(n)
	if err != nil {
		return nil, &Error{"socket", ^uintptr(0), err}
	}
	return fromHandle(h, n.stream(), n.tcp()), nil
}

// Bind binds the socket to a local address.
func (s *Socket) Bind(a netip.AddrPort) error {
	return addAddress(s.do("bind", func(h uintptr) error { return sysBind(h, a) }), a)
}

// BindUnix binds a Unix socket to a path or, on Linux, to an abstract name, which begins with @.
func (s *Socket) BindUnix(path string) error {
	return addAddress(s.do("bind", func(h uintptr) error { return sysBindUnix(h, path) }), path)
}

// Connect connects the socket to an address. It returns ErrWouldBlock if the connection is in progress; the port then
// reports EventOut when it is established, and EventErr if it has failed. For a datagram socket, Connect sets the peer.
func (s *Socket) Connect(a netip.AddrPort) error {
	return addAddress(s.do("connect", func(h uintptr) error { return sysConnect(h, a) }), a)
}

// ConnectUnix connects a Unix socket. It returns ErrWouldBlock if the listener's backlog is full. The system does
// not report when there is room again, so the caller must retry later.
func (s *Socket) ConnectUnix(path string) error {
	return addAddress(s.do("connect", func(h uintptr) error { return sysConnectUnix(h, path) }), path)
}

// addAddress adds the address to the error of a failed call.
func addAddress[A any](err error, addr A) error {
	if e, ok := err.(*Error); ok && e.Handle != ^uintptr(0) {
		e.Err = fmt.Errorf("%v: %w", addr, e.Err)
	}
	return err
}

// LocalAddr returns the local address of a TCP or UDP socket, or the zero AddrPort.
func (s *Socket) LocalAddr() netip.AddrPort { return get(s, sysLocalAddr) }

// RemoteAddr returns the peer's address of a TCP or UDP socket, or the zero AddrPort.
func (s *Socket) RemoteAddr() netip.AddrPort { return get(s, sysRemoteAddr) }

// LocalPath returns the path or abstract name to which a Unix socket is bound, or "".
func (s *Socket) LocalPath() string { return get(s, sysLocalPath) }

// get calls f with the handle. It returns the zero value for a closed socket.
func get[T any](s *Socket, f func(h uintptr) T) (v T) {
	h, ok := s.fd.Use()
	if !ok {
		return v
	}
	defer s.fd.Done()
	return f(h)
}

// do calls f with the handle and converts its error. It is for calls outside the hot path.
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

// zoneID returns the index of a network interface, which is given by name or index.
func zoneID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	i, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, err
	}
	return uint32(i.Index), nil
}

// Names holds the names of a socket in printable form: addresses with ports, or the path of a Unix
// socket. A name that the socket does not have is "".
type Names struct {
	Network       string // tcp, udp, unix or unixgram
	Local, Remote string // Remote is set for TCP and UDP only
	Listening     bool
}

// NamesOf returns the names of the socket with the given handle. The caller must ensure that the
// handle is not closed during the call; otherwise the result may describe another socket.
func NamesOf(handle uintptr) (Names, error) {
	kind, err := sysDescribe(handle)
	if err != nil {
		return Names{}, &Error{"names", handle, err}
	}
	n := Names{Listening: kind.listening}
	local := sysLocalAddr(handle)
	switch {
	case local == netip.AddrPort{}:
		n.Network, n.Local = "unixgram", sysLocalPath(handle)
		if kind.stream {
			n.Network = "unix"
		}
		return n, nil
	case kind.stream:
		n.Network = "tcp"
	default:
		n.Network = "udp"
	}
	n.Local = local.String()
	if remote := sysRemoteAddr(handle); remote.IsValid() {
		n.Remote = remote.String()
	}
	return n, nil
}
