package sock

import (
	"errors"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/fdstate"
)

func sysSocket(n Network) (uintptr, error) {
	h, err := socket(n)
	if err != nil {
		return 0, err
	}
	if err := sysNonblock(h); err != nil {
		sysClose(h)
		return 0, err
	}
	if n == UDP4 || n == UDP6 {
		setConnReset(h, false)
	}
	return h, nil
}

// socket returns a new socket in blocking mode.
func socket(n Network) (uintptr, error) {
	if err := winsock(); err != nil {
		return 0, err
	}
	family, typ := int32(windows.AF_INET), int32(windows.SOCK_STREAM)
	switch n {
	case TCP6, UDP6:
		family = windows.AF_INET6
	case Unix, UnixDatagram:
		family = windows.AF_UNIX
	}
	if !n.stream() {
		typ = windows.SOCK_DGRAM
	}
	h, err := windows.WSASocket(family, typ, 0, nil, 0, socketFlags)
	switch err {
	case nil:
		return uintptr(h), nil
	case windows.WSAEAFNOSUPPORT, windows.WSAESOCKTNOSUPPORT, windows.WSAEPROTONOSUPPORT:
		if family == windows.AF_UNIX { // Windows before 10 1803, and datagram sockets on every version
			err = errors.ErrUnsupported
		}
	}
	return 0, err
}

const socketFlags = windows.WSA_FLAG_OVERLAPPED | windows.WSA_FLAG_NO_HANDLE_INHERIT

// setConnReset selects whether a UDP socket reports that an earlier datagram was sent to a closed port. As on other
// systems, only connected sockets should: on an unconnected socket the error would make a receive from any peer
// fail.
func setConnReset(h uintptr, on bool) {
	var v, n uint32
	if on {
		v = 1
	}
	for _, code := range [...]uint32{windows.SIO_UDP_CONNRESET, windows.SIO_UDP_NETRESET} {
		windows.WSAIoctl(windows.Handle(h), code, (*byte)(unsafe.Pointer(&v)), uint32(unsafe.Sizeof(v)), nil, 0, &n, nil, 0)
	}
}

// sysListen lets the system choose the maximum backlog.
func sysListen(h uintptr, backlog int) error {
	if backlog <= 0 {
		backlog = windows.SOMAXCONN
	}
	return windows.Listen(windows.Handle(h), backlog)
}

// sysListenOptions does not set SO_REUSEADDR. On Windows that option would let other programs take over the
// address, and it is not needed to bind an address that has connections in TIME_WAIT.
func sysListenOptions(h uintptr, a netip.AddrPort, o ListenOptions) error {
	if !a.Addr().Is4() {
		if err := sysDualStack(h, o.DualStack); err != nil {
			return err
		}
	}
	if o.ReusePort {
		return errors.ErrUnsupported
	}
	return nil
}

// sysAccept sets the mode of the new socket explicitly, and does not rely on what it inherits from the listener.
func sysAccept(h uintptr) (uintptr, error) {
	for {
		c, _, e := syscall.SyscallN(procAccept.Addr(), h, 0, 0)
		switch {
		case c != uintptr(windows.InvalidHandle):
		case e == windows.WSAECONNRESET, e == windows.WSAECONNABORTED: // the error of this connection: accept the next one
			continue
		default:
			return 0, blockedOr(e)
		}
		err := sysNonblock(c)
		if err == nil {
			err = windows.SetHandleInformation(windows.Handle(c), windows.HANDLE_FLAG_INHERIT, 0)
		}
		if err != nil {
			sysClose(c)
			return 0, err
		}
		return c, nil
	}
}

func sysNonblock(h uintptr) error {
	const fionbio = 0x8004667e
	on := uint32(1)
	if r, _, e := syscall.SyscallN(procIoctlsocket.Addr(), h, fionbio, uintptr(unsafe.Pointer(&on))); wantError(r) {
		return blockedOr(e)
	}
	return nil
}

func sysClose(h uintptr) error { return windows.Closesocket(windows.Handle(h)) }

func sysShutdown(h uintptr, how How) error { return windows.Shutdown(windows.Handle(h), int(how)) }

func sysExhausted(err error) bool {
	for _, e := range [...]error{windows.WSAEMFILE, windows.WSAENOBUFS, windows.ERROR_NOT_ENOUGH_MEMORY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func sysErr(h uintptr) error {
	v, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soError)
	if err != nil {
		return err
	}
	if v != 0 {
		return windows.Errno(v)
	}
	return nil
}

func set(h uintptr, level, option, value int) error {
	return windows.SetsockoptInt(windows.Handle(h), level, option, value)
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

func sysNoDelay(h uintptr, on bool) error {
	return set(h, windows.IPPROTO_TCP, windows.TCP_NODELAY, flag(on))
}

func sysHasNoDelay(h uintptr) (bool, error) { return has(h, windows.IPPROTO_TCP, windows.TCP_NODELAY) }
func hasKeepAlive(h uintptr) (bool, error)  { return has(h, windows.SOL_SOCKET, windows.SO_KEEPALIVE) }

func has(h uintptr, level, option int) (bool, error) {
	v, err := windows.GetsockoptInt(windows.Handle(h), level, option)
	return v != 0, err
}

func getTCP(h uintptr, option int) (int, error) {
	v, err := windows.GetsockoptInt(windows.Handle(h), windows.IPPROTO_TCP, option)
	if err == windows.WSAENOPROTOOPT {
		return 0, errors.ErrUnsupported
	}
	return v, err
}

// sysIsTCP is called for connections of a listener that is not TCP itself. On Windows such connections are never TCP.
func sysIsTCP(uintptr) bool { return false }

func sysDualStack(h uintptr, on bool) error {
	return set(h, windows.IPPROTO_IPV6, windows.IPV6_V6ONLY, flag(!on))
}

// sysReusePort is not supported: SO_REUSEADDR lets several sockets use an address, but does not distribute connections.
func sysReusePort(uintptr, bool) error { return errors.ErrUnsupported }

func sysBuffer(h uintptr, d fdstate.Dir, n int) error {
	option := windows.SO_RCVBUF
	if d == fdstate.Send {
		option = windows.SO_SNDBUF
	}
	return set(h, windows.SOL_SOCKET, option, n)
}

func sysLinger(h uintptr, reset bool) error {
	l := windows.Linger{Onoff: int32(flag(reset))}
	return windows.SetsockoptLinger(windows.Handle(h), windows.SOL_SOCKET, windows.SO_LINGER, &l)
}

const (
	keepIdle     = windows.TCP_KEEPIDLE
	keepInterval = windows.TCP_KEEPINTVL
	keepCount    = windows.TCP_KEEPCNT
)

func setKeepAlive(h uintptr, on bool) error {
	return set(h, windows.SOL_SOCKET, windows.SO_KEEPALIVE, flag(on))
}

func setTCP(h uintptr, option, value int) error {
	err := set(h, windows.IPPROTO_TCP, option, value)
	if err == windows.WSAENOPROTOOPT { // before Windows 10 1709, or 1703 for the number of probes
		return errors.ErrUnsupported
	}
	return err
}
