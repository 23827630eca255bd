package sock

import (
	"net/netip"
	"runtime"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// ListenOptions are what a listener may want. The zero value is a listener with the system's longest
// backlog.
type ListenOptions struct {
	// Backlog is how many connections wait to be accepted at most; 0 is as many as the system allows.
	Backlog int
	// ReusePort lets several sockets listen on one address, of which each gets its share of the
	// connections or datagrams. errors.ErrUnsupported where the system has no such thing.
	ReusePort bool
	// DualStack makes a listener on an IPv6 address take IPv4 as well. Without it, it does not.
	DualStack bool
}

// Listen makes a bound stream socket accept connections, backlog of them in advance. 0 is as many as the
// system allows.
func (s *Socket) Listen(backlog int) error {
	return s.do("listen", func(h uintptr) error { return sysListen(h, backlog) })
}

// ListenTCP makes a socket that listens on an address.
func ListenTCP(a netip.AddrPort, o ListenOptions) (*Socket, error) {
	s, err := New(NetworkOf(a, TCP4, TCP6))
	if err != nil {
		return nil, err
	}
	err = s.do("setsockopt", func(h uintptr) error { return sysListenOptions(h, a, o) })
	if err == nil {
		err = s.Bind(a)
	}
	if err == nil {
		err = s.Listen(o.Backlog)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ListenTCPGroup makes n sockets that listen on one address and share its connections, by ReusePort; 0 or
// less is one for each processor that Go may use. Where the address leaves the port to the system, they share the
// first one's.
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

// ListenUDP makes a socket that receives datagrams on an address. The options' Backlog means nothing here.
func ListenUDP(a netip.AddrPort, o ListenOptions) (*Socket, error) {
	s, err := New(NetworkOf(a, UDP4, UDP6))
	if err != nil {
		return nil, err
	}
	if !a.Addr().Is4() {
		err = s.SetDualStack(o.DualStack)
	}
	if err == nil && o.ReusePort {
		err = s.SetReusePort(true)
	}
	if err == nil {
		err = s.Bind(a)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ListenUnix makes a socket that listens on a path, which must not exist, or on an abstract name. The path
// stays when the socket is closed.
func ListenUnix(path string, o ListenOptions) (*Socket, error) {
	s, err := New(Unix)
	if err != nil {
		return nil, err
	}
	if err = s.BindUnix(path); err == nil {
		err = s.Listen(o.Backlog)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Accept takes a pending connection, or ErrWouldBlock. Connections that were given up while they waited
// are passed over. The new socket has the system's default options.
func (s *Socket) Accept() (*Socket, error) {
	c := new(Socket)
	if err := s.AcceptInto(c); err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptInto is Accept into a closed Socket of the caller's, and allocates nothing.
func (s *Socket) AcceptInto(c *Socket) error {
	if !c.fd.Closed() { // asked first, so that no connection is lost for it
		return s.fail("accept", errOpen)
	}
	h, ok := s.fd.Use()
	if !ok {
		return closed("accept")
	}
	defer s.fd.Done()
	turn := s.fd.Turn()
	fd, err := sysAccept(h)
	switch {
	case err == ErrWouldBlock:
		s.fd.Blocked(dirRecv, turn)
		return err
	case err != nil:
		return &Error{"accept", h, err}
	}
	tcp := s.is(kindTCP)
	if s.is(kindMixed) {
		tcp = sysIsTCP(fd)
	}
	c.fd.SetKind(kindOf(true, tcp) | fdstate.Accepted)
	if !c.fd.Open(fd) {
		sysClose(fd)
		return s.fail("accept", errOpen)
	}
	return nil
}

// Acceptable reports whether there may be a connection to accept. On Linux that is certain, and costs a ninth of an
// Accept in vain; elsewhere it is always true.
func (s *Socket) Acceptable() bool {
	h, ok := s.fd.Use()
	if !ok {
		return false
	}
	defer s.fd.Done()
	return sysAcceptable(h)
}

// IsExhausted reports whether a call failed for want of descriptors or memory, so that it may succeed later.
func IsExhausted(err error) bool { return sysExhausted(err) }
