package sock

import "net"

// SetNoDelay says whether small sends go out at once (TCP_NODELAY). The system's default is not to;
// package net's is to.
func (s *Socket) SetNoDelay(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysNoDelay(h, on) })
}

// NoDelay reports whether small sends go out at once.
func (s *Socket) NoDelay() (on bool, err error) {
	err = s.do("getsockopt", func(h uintptr) (err error) {
		on, err = sysHasNoDelay(h)
		return err
	})
	return on, err
}

// SetKeepAlive configures keep-alive probes of a TCP connection. Fields of 0 are as for
// net.TCPConn.SetKeepAliveConfig, negative ones leave the system's value. errors.ErrUnsupported
// where the system has not all of them.
func (s *Socket) SetKeepAlive(c net.KeepAliveConfig) error {
	return s.do("setsockopt", func(h uintptr) error { return sysKeepAlive(h, c) })
}

// KeepAlive returns the probes of a TCP connection, or what those of a listener's connections begin with. 0 is what the
// system does not tell.
func (s *Socket) KeepAlive() (c net.KeepAliveConfig, err error) {
	err = s.do("getsockopt", func(h uintptr) (err error) {
		c, err = sysGetKeepAlive(h)
		return err
	})
	return c, err
}

// SetReadBuffer asks for a size of the system's receive buffer, in bytes.
func (s *Socket) SetReadBuffer(n int) error {
	return s.do("setsockopt", func(h uintptr) error { return sysBuffer(h, dirRecv, n) })
}

// SetWriteBuffer asks for a size of the system's send buffer, in bytes.
func (s *Socket) SetWriteBuffer(n int) error {
	return s.do("setsockopt", func(h uintptr) error { return sysBuffer(h, dirSend, n) })
}

// SetLinger says what Close does with what was sent and not yet acknowledged: with seconds < 0 the system
// goes on sending it, with 0 it is dropped and the peer sees a reset. A number of seconds to wait is
// refused, because Close would block for it.
func (s *Socket) SetLinger(seconds int) error {
	return s.do("setsockopt", func(h uintptr) error {
		if seconds > 0 {
			return errLinger
		}
		return sysLinger(h, seconds == 0)
	})
}

// SetDualStack says whether an IPv6 socket takes IPv4 as well, as mapped addresses. It must come before
// Bind.
func (s *Socket) SetDualStack(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysDualStack(h, on) })
}

// SetReusePort says whether other sockets may be bound to the same address, to share what comes in. It
// must come before Bind. errors.ErrUnsupported where the system does not share.
func (s *Socket) SetReusePort(on bool) error {
	return s.do("setsockopt", func(h uintptr) error { return sysReusePort(h, on) })
}
