package sock

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
)

// ListenOptions are options for listeners.
type ListenOptions struct {
	// Backlog is the maximum number of connections that wait to be accepted. 0 means the system's maximum.
	Backlog int
	// ReusePort lets several sockets listen on the same address and share its connections or datagrams.
	// Listening fails with errors.ErrUnsupported if the system does not support that.
	ReusePort bool
	// DualStack makes a listener on an IPv6 address accept IPv4 too.
	DualStack bool
}

// Listen makes a bound stream socket a listener. backlog is the maximum number of connections that wait to be
// accepted; 0 means the system's maximum.
func (s *Socket) Listen(backlog int) error {
	return s.do("listen", func(h uintptr) error { return sysListen(h, backlog) })
}

// open returns a new socket on which setUp has not failed.
func open(n Network, setUp func(*Socket) error) (*Socket, error) {
	s, err := New(n)
	if err != nil {
		return nil, err
	}
	if err := setUp(s); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ListenTCP returns a socket that listens on a TCP address.
func ListenTCP(a netip.AddrPort, o ListenOptions) (*Socket, error) {
	return open(NetworkOf(a, TCP4, TCP6), func(s *Socket) error {
		err := s.do("setsockopt", func(h uintptr) error { return sysListenOptions(h, a, o) })
		if err == nil {
			err = s.Bind(a)
		}
		if err == nil {
			err = s.Listen(o.Backlog)
		}
		return err
	})
}

// ListenTCPGroup returns n sockets that listen on the same address and share its connections by ReusePort. If n is
// 0 or less, it returns runtime.GOMAXPROCS(0) sockets. If the port of the address is 0, the system chooses a port
// for the first socket, and the others use the same.
func ListenTCPGroup(a netip.AddrPort, o ListenOptions, n int) ([]*Socket, error) {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	o.ReusePort = true
	var group []*Socket
	for range n {
		s, err := ListenTCP(a, o)
		if err != nil {
			for _, s := range group {
				s.Close()
			}
			return nil, err
		}
		if a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), s.LocalAddr().Port())
		}
		group = append(group, s)
	}
	return group, nil
}

// ListenUDP returns a socket that receives datagrams on an address. It ignores ListenOptions.Backlog.
func ListenUDP(a netip.AddrPort, o ListenOptions) (*Socket, error) {
	return open(NetworkOf(a, UDP4, UDP6), func(s *Socket) (err error) {
		if !a.Addr().Is4() {
			err = s.SetDualStack(o.DualStack)
		}
		if err == nil && o.ReusePort {
			err = s.SetReusePort(true)
		}
		if err == nil {
			err = s.Bind(a)
		}
		return err
	})
}

// ListenUnix returns a stream socket that listens on a path or, on Linux, on an abstract name. The path must not
// exist. It is not removed when the socket is closed. ListenUnix uses only ListenOptions.Backlog.
func ListenUnix(path string, o ListenOptions) (*Socket, error) {
	return open(Unix, func(s *Socket) error {
		if err := s.BindUnix(path); err != nil {
			return err
		}
		return s.Listen(o.Backlog)
	})
}

// Accept returns the next pending connection, or ErrWouldBlock if there is none. It skips connections that were
// aborted by the peer. The new socket has the system's default options.
func (s *Socket) Accept() (*Socket, error) {
	c := new(Socket)
	if err := s.AcceptInto(c); err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptInto is like [Socket.Accept], but opens the closed Socket c and does not allocate. It fails if c is open or
// if a call on c is still in progress.
func (s *Socket) AcceptInto(c *Socket) error {
	if !c.fd.Closed() { // before accept, so that no connection is lost
		return s.fail("accept", errOpen)
	}
	h, ok := s.fd.Use()
	if !ok {
		return closed("accept")
	}
	defer s.fd.Done()
	generation := s.fd.Generation()
	fd, err := sysAccept(h)
	if _, err := s.finish("accept", h, dirRecv, generation, 0, err); err != nil {
		return err
	}
	tcp := s.is(kindTCP)
	if s.is(kindMaybeTCP) {
		tcp = sysIsTCP(fd)
	}
	c.fd.SetKind(kindOf(true, tcp) | fdstate.Accepted)
	if !c.fd.Open(fd) {
		sysClose(fd)
		return s.fail("accept", errOpen)
	}
	return nil
}

// Acceptable reports whether there may be a connection to accept. On Linux the answer is exact, and costs a ninth of an
// Accept that returns ErrWouldBlock. On other systems Acceptable returns true for every open socket.
func (s *Socket) Acceptable() bool {
	return get(s, sysAcceptable)
}

// IsExhausted reports whether err means that the system has run out of descriptors or memory, so that the call may
// succeed later.
func IsExhausted(err error) bool {
	return slices.ContainsFunc(exhausted[:], func(e error) bool { return errors.Is(err, e) })
}
