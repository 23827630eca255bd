//go:build unix && !linux

package sock

import (
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// A sockaddr is the memory for the address argument of a call.
type sockaddr struct {
	four unix.SockaddrInet4
	six  unix.SockaddrInet6
}

var sockaddrs = sync.Pool{New: func() any { return new(sockaddr) }}

// withAddr calls f with x/sys's representation of a.
func withAddr(a netip.AddrPort, f func(unix.Sockaddr) error) error {
	if !a.IsValid() {
		return unix.EDESTADDRREQ
	}
	zone, err := zoneID(a.Addr().Zone())
	if err != nil {
		return err
	}
	sa := sockaddrs.Get().(*sockaddr)
	defer sockaddrs.Put(sa)
	if a.Addr().Is4() {
		sa.four.Port, sa.four.Addr = int(a.Port()), a.Addr().As4()
		return f(&sa.four)
	}
	sa.six.Port, sa.six.Addr, sa.six.ZoneId = int(a.Port()), a.Addr().As16(), zone
	return f(&sa.six)
}

// decode returns the address. It returns the zero AddrPort if the address belongs to another family.
func decode(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr)
		if sa.ZoneId != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(sa.ZoneId), 10))
		}
		return netip.AddrPortFrom(a, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func sysBind(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unix.Sockaddr) error { return unix.Bind(int(h), sa) })
}

func sysConnect(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unix.Sockaddr) error {
		err := unix.Connect(int(h), sa)
		if err == unix.EINTR {
			return ErrWouldBlock // the connection attempt continues
		}
		return blocked(err)
	})
}

func sysLocalAddr(h uintptr) netip.AddrPort {
	sa, _ := unix.Getsockname(int(h))
	return decode(sa)
}

func sysRemoteAddr(h uintptr) netip.AddrPort {
	sa, _ := unix.Getpeername(int(h))
	return decode(sa)
}

// isTCP reads an option that only TCP sockets have, because few of these systems report a socket's protocol.
func isTCP(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	return err == nil
}
