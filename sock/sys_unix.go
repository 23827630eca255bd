//go:build unix

package sock

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

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
	return setFlag(h, unix.SOL_SOCKET, reusePort, on)
}

func getOption(h uintptr, level, option int) (int, error) {
	return unix.GetsockoptInt(int(h), level, option)
}

func setOption(h uintptr, level, option, value int) error {
	return unix.SetsockoptInt(int(h), level, option, value)
}

const (
	errNoOption = unix.ENOPROTOOPT
	soError     = unix.SO_ERROR
)

var exhausted = [...]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM}

func sysClose(h uintptr) error             { return unix.Close(int(h)) }
func sysDetached(uintptr)                  {}
func sysShutdown(h uintptr, how How) error { return unix.Shutdown(int(h), int(how)) }
func sysNonblock(h uintptr) error          { return unix.SetNonblock(int(h), true) }

func sysLinger(h uintptr, reset bool) error {
	l := unix.Linger{Onoff: int32(flag(reset))}
	return unix.SetsockoptLinger(int(h), unix.SOL_SOCKET, unix.SO_LINGER, &l)
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
