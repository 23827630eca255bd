//go:build unix

package sock

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/fdstate"
)

func (n Network) sys() (domain, typ int) {
	domain, typ = unix.AF_INET, unix.SOCK_STREAM
	switch n {
	case TCP6, UDP6:
		domain = unix.AF_INET6
	case Unix, UnixDatagram:
		domain = unix.AF_UNIX
	}
	if !n.stream() {
		typ = unix.SOCK_DGRAM
	}
	return domain, typ
}

func sysSocket(n Network) (uintptr, error) {
	domain, typ := n.sys()
	fd, err := newSocket(domain, typ)
	return uintptr(fd), err
}

// UnixPair returns two connected Unix sockets: stream sockets, or datagram sockets.
func UnixPair(datagram bool) (a, b *Socket, err error) {
	n := Unix
	if datagram {
		n = UnixDatagram
	}
	fds, err := newPair(n.sys())
	if err != nil {
		return nil, nil, &Error{"socketpair", ^uintptr(0), err}
	}
	return fromHandle(uintptr(fds[0]), n.stream(), false), fromHandle(uintptr(fds[1]), n.stream(), false), nil
}

// sysListen passes a large number for the maximum backlog, which the kernel reduces to its limit.
func sysListen(h uintptr, backlog int) error {
	if backlog <= 0 {
		backlog = 1<<16 - 1
	}
	return unix.Listen(int(h), backlog)
}

func sysListenOptions(h uintptr, a netip.AddrPort, o ListenOptions) error {
	if err := unix.SetsockoptInt(int(h), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if !a.Addr().Is4() {
		if err := sysDualStack(h, o.DualStack); err != nil {
			return err
		}
	}
	if o.ReusePort {
		return sysReusePort(h, true)
	}
	return nil
}

func sysReusePort(h uintptr, on bool) error {
	if reusePort == 0 {
		return errors.ErrUnsupported
	}
	return set(h, unix.SOL_SOCKET, reusePort, on)
}

func sysClose(h uintptr) error              { return unix.Close(int(h)) }
func sysDetached(uintptr)                   {}
func sysShutdown(h uintptr, how How) error  { return unix.Shutdown(int(h), int(how)) }
func sysNonblock(h uintptr) error           { return unix.SetNonblock(int(h), true) }
func sysNoDelay(h uintptr, on bool) error   { return set(h, unix.IPPROTO_TCP, unix.TCP_NODELAY, on) }
func sysDualStack(h uintptr, on bool) error { return set(h, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, !on) }

func sysHasNoDelay(h uintptr) (bool, error) { return has(h, unix.IPPROTO_TCP, unix.TCP_NODELAY) }
func hasKeepAlive(h uintptr) (bool, error)  { return has(h, unix.SOL_SOCKET, unix.SO_KEEPALIVE) }

func has(h uintptr, level, option int) (bool, error) {
	v, err := unix.GetsockoptInt(int(h), level, option)
	return v != 0, err
}

func getTCP(h uintptr, option int) (int, error) {
	v, err := unix.GetsockoptInt(int(h), unix.IPPROTO_TCP, option)
	if err == unix.ENOPROTOOPT {
		return 0, errors.ErrUnsupported
	}
	return v, err
}

func set(h uintptr, level, option int, on bool) error {
	v := 0
	if on {
		v = 1
	}
	return unix.SetsockoptInt(int(h), level, option, v)
}

func sysErr(h uintptr) error {
	v, err := unix.GetsockoptInt(int(h), unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if v != 0 {
		return unix.Errno(v)
	}
	return nil
}

func sysBuffer(h uintptr, d fdstate.Dir, n int) error {
	option := unix.SO_RCVBUF
	if d == fdstate.Send {
		option = unix.SO_SNDBUF
	}
	return unix.SetsockoptInt(int(h), unix.SOL_SOCKET, option, n)
}

func sysLinger(h uintptr, reset bool) error {
	var l unix.Linger
	if reset {
		l.Onoff = 1
	}
	return unix.SetsockoptLinger(int(h), unix.SOL_SOCKET, unix.SO_LINGER, &l)
}

func setKeepAlive(h uintptr, on bool) error { return set(h, unix.SOL_SOCKET, unix.SO_KEEPALIVE, on) }

func setTCP(h uintptr, option, value int) error {
	err := unix.SetsockoptInt(int(h), unix.IPPROTO_TCP, option, value)
	if err == unix.ENOPROTOOPT {
		return errors.ErrUnsupported
	}
	return err
}

func sysDescribe(h uintptr) (d description, err error) {
	fd := int(h)
	if fd < 0 || uintptr(int32(fd)) != h {
		return d, unix.EBADF
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return d, err
	}
	if typ == unix.SOCK_SEQPACKET {
		return d, unix.ESOCKTNOSUPPORT // not supported: it has message boundaries and an end
	}
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return d, err
	}
	flags, err := unix.FcntlInt(h, unix.F_GETFL, 0)
	if err != nil {
		return d, err
	}
	d.stream = typ == unix.SOCK_STREAM
	d.tcp = d.stream && isTCP(fd)
	d.listening = listening != 0
	d.blocking = flags&unix.O_NONBLOCK == 0
	return d, nil
}

func sysIsTCP(h uintptr) bool { return isTCP(int(h)) }

func sysExhausted(err error) bool {
	for _, e := range [...]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sysBindUnix(h uintptr, path string) error {
	return unix.Bind(int(h), &unix.SockaddrUnix{Name: path})
}

func sysConnectUnix(h uintptr, path string) error {
	return blocked(unix.Connect(int(h), &unix.SockaddrUnix{Name: path}))
}

func sysLocalPath(h uintptr) string {
	sa, err := unix.Getsockname(int(h))
	if err != nil {
		return ""
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok && u.Name != "@" { // x/sys returns "@" for an unbound socket
		return u.Name
	}
	return ""
}

// blocked converts errors that mean that a call would block, or continues in the background, to ErrWouldBlock.
func blocked(err error) error {
	if err == unix.EAGAIN || err == unix.EINPROGRESS {
		return ErrWouldBlock
	}
	return err
}
