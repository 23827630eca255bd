package sock

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/tie"
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
	fd, err := unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	return uintptr(fd), err
}

// UnixPair makes two connected Unix sockets: streams, or datagram sockets.
func UnixPair(datagram bool) (a, b *Socket, err error) {
	n := Unix
	if datagram {
		n = UnixDatagram
	}
	domain, typ := n.sys()
	fds, err := unix.Socketpair(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &Error{"socketpair", ^uintptr(0), err}
	}
	return adopt(uintptr(fds[0]), n.stream(), false), adopt(uintptr(fds[1]), n.stream(), false), nil
}

// sysListen leaves the longest backlog to the kernel, which cuts larger ones.
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

// sysAccept goes through the scheduler: making a socket takes long enough, and locks of the process's.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		fd, _, e := unix.Syscall6(unix.SYS_ACCEPT4, h, 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		switch e {
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EPROTO, unix.ENETDOWN, unix.ENETUNREACH, unix.EHOSTDOWN, unix.EHOSTUNREACH, unix.ENOPROTOOPT, unix.ENONET:
			// The connection's own pending error (accept(2)).
		default:
			return fd, blockedOr(e)
		}
	}
}

func sysClose(h uintptr) error              { return unix.Close(int(h)) }
func sysShutdown(h uintptr, how How) error  { return unix.Shutdown(int(h), int(how)) }
func sysNonblock(h uintptr) error           { return unix.SetNonblock(int(h), true) }
func sysNoDelay(h uintptr, on bool) error   { return set(h, unix.IPPROTO_TCP, unix.TCP_NODELAY, on) }
func sysReusePort(h uintptr, on bool) error { return set(h, unix.SOL_SOCKET, unix.SO_REUSEPORT, on) }
func sysDualStack(h uintptr, on bool) error { return set(h, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, !on) }

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

func sysBuffer(h uintptr, d tie.Dir, n int) error {
	option := unix.SO_RCVBUF
	if d == tie.Send {
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

func sysKeepAlive(h uintptr, c net.KeepAliveConfig) error {
	if err := set(h, unix.SOL_SOCKET, unix.SO_KEEPALIVE, c.Enable); err != nil || !c.Enable {
		return err
	}
	// Zero is package net's own default.
	for _, o := range []struct {
		option, value, unset int
	}{
		{unix.TCP_KEEPIDLE, seconds(c.Idle), 15},
		{unix.TCP_KEEPINTVL, seconds(c.Interval), 15},
		{unix.TCP_KEEPCNT, c.Count, 9},
	} {
		if o.value == 0 {
			o.value = o.unset
		}
		if o.value < 0 {
			continue
		}
		if err := unix.SetsockoptInt(int(h), unix.IPPROTO_TCP, o.option, o.value); err != nil {
			return err
		}
	}
	return nil
}

// seconds rounds up.
func seconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int((d + time.Second - 1) / time.Second)
}

// A description is what Adopt needs to know of a handle.
type description struct{ stream, tcp, blocking bool }

func sysDescribe(h uintptr) (d description, err error) {
	fd := int(h)
	if fd < 0 || uintptr(int32(fd)) != h {
		return d, unix.EBADF
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return d, err
	}
	proto, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return d, err
	}
	flags, err := unix.FcntlInt(h, unix.F_GETFL, 0)
	if err != nil {
		return d, err
	}
	d.stream = typ == unix.SOCK_STREAM
	d.tcp = d.stream && proto == unix.IPPROTO_TCP
	d.blocking = flags&unix.O_NONBLOCK == 0
	return d, nil
}

func sysDup(h uintptr) (uintptr, error) {
	fd, err := unix.FcntlInt(h, unix.F_DUPFD_CLOEXEC, 0)
	return uintptr(fd), err
}

func sysExhausted(err error) bool {
	for _, e := range [...]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
