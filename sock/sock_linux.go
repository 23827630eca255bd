package sock

import (
	"io"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIO caps one receive or send. They go around Go's scheduler, which is right only while they are
// short.
const maxIO = 256 << 10

func sysErr(call string, err error) error {
	if err == unix.EAGAIN {
		return ErrWouldBlock
	}
	return os.NewSyscallError(call, err)
}

// New makes an unbound socket.
func New(n Network) (*Socket, error) {
	domain, typ := unix.AF_INET, unix.SOCK_STREAM
	if n == TCP6 || n == UDP6 {
		domain = unix.AF_INET6
	}
	if n == UDP4 || n == UDP6 {
		typ = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, sysErr("socket", err)
	}
	return &Socket{fd}, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// Bind gives the socket a local address.
func (s *Socket) Bind(a netip.AddrPort) error {
	return os.NewSyscallError("bind", unix.Bind(s.fd, sockaddr(a)))
}

// Listen makes a bound TCP socket accept connections, backlog of them in advance.
func (s *Socket) Listen(backlog int) error {
	return os.NewSyscallError("listen", unix.Listen(s.fd, backlog))
}

// ListenTCP makes a TCP socket that listens on an address.
func ListenTCP(a netip.AddrPort, backlog int) (*Socket, error) {
	n := TCP4
	if a.Addr().Is6() {
		n = TCP6
	}
	s, err := New(n)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		s.Close()
		return nil, sysErr("setsockopt", err)
	}
	if err := s.Bind(a); err != nil {
		s.Close()
		return nil, err
	}
	if err := s.Listen(backlog); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Accept takes a pending connection, or ErrWouldBlock.
func (s *Socket) Accept() (*Socket, error) {
	for {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			return nil, sysErr("accept4", err)
		}
		return &Socket{fd}, nil
	}
}

// Connect starts to connect. nil says that it has connected, ErrWouldBlock that it is under way:
// EventOut will say when it is done, EventErr that it has failed. On a UDP socket it sets the peer.
func (s *Socket) Connect(a netip.AddrPort) error {
	err := unix.Connect(s.fd, sockaddr(a))
	if err == unix.EINPROGRESS {
		return ErrWouldBlock
	}
	return os.NewSyscallError("connect", err)
}

// Recv receives into b: io.EOF at end of stream, ErrWouldBlock where there is nothing yet.
func (s *Socket) Recv(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := s.io(unix.SYS_RECVFROM, b, 0)
	if err != 0 {
		return 0, sysErr("recv", err)
	}
	if n == 0 && s.isStream() {
		return 0, io.EOF
	}
	return n, nil
}

// isStream tells an end of stream from an empty datagram; only empty receives ask.
func (s *Socket) isStream() bool {
	t, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err != nil || t == unix.SOCK_STREAM
}

// Send sends from b and returns how much the system took.
func (s *Socket) Send(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := s.io(unix.SYS_SENDTO, b, unix.MSG_NOSIGNAL)
	if err != 0 {
		return 0, sysErr("send", err)
	}
	return n, nil
}

// io is one recv or send. The socket is non-blocking and the size bounded, so it goes around Go's
// scheduler.
func (s *Socket) io(trap uintptr, b []byte, flags uintptr) (int, unix.Errno) {
	size := min(len(b), maxIO)
	annotate(trap, b[:size])
	for {
		n, _, e := unix.RawSyscall6(trap, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(size), flags, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// RecvFrom receives one datagram and tells who sent it.
func (s *Socket) RecvFrom(b []byte) (int, netip.AddrPort, error) {
	n, from, err := unix.Recvfrom(s.fd, b, 0)
	if err != nil {
		return 0, netip.AddrPort{}, sysErr("recvfrom", err)
	}
	return n, addrPort(from), nil
}

// SendTo sends one datagram.
func (s *Socket) SendTo(b []byte, to netip.AddrPort) error {
	if err := unix.Sendto(s.fd, b, unix.MSG_NOSIGNAL, sockaddr(to)); err != nil {
		return sysErr("sendto", err)
	}
	return nil
}

// Shutdown shuts one direction of a connection, or both.
func (s *Socket) Shutdown(how How) error {
	return os.NewSyscallError("shutdown", unix.Shutdown(s.fd, int(how)))
}

// Err returns the pending error of the socket, once: reading it clears it (SO_ERROR).
func (s *Socket) Err() error {
	v, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	if v != 0 {
		return unix.Errno(v)
	}
	return nil
}

// ResetOnClose makes Close abort the connection: the peer sees a reset.
func (s *Socket) ResetOnClose() error {
	l := unix.Linger{Onoff: 1}
	return os.NewSyscallError("setsockopt", unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &l))
}

// Close closes the socket. A second Close returns an error.
func (s *Socket) Close() error {
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

func (s *Socket) localAddr() netip.AddrPort {
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return addrPort(sa)
}

// UnixPair makes two connected Unix sockets: streams, or datagram sockets.
func UnixPair(datagram bool) (a, b *Socket, err error) {
	typ := unix.SOCK_STREAM
	if datagram {
		typ = unix.SOCK_DGRAM
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, sysErr("socketpair", err)
	}
	return &Socket{fds[0]}, &Socket{fds[1]}, nil
}
