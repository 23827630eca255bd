package sock

import (
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// encode writes an address as the system wants it and returns its length.
func encode(a netip.AddrPort, sa *unix.RawSockaddrAny) (uintptr, error) {
	if a.Addr().Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		*in = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.Addr().As4()}
		setPort(&in.Port, a.Port())
		return unix.SizeofSockaddrInet4, nil
	}
	if !a.IsValid() {
		return 0, unix.EDESTADDRREQ
	}
	zone, err := zoneID(a.Addr().Zone())
	if err != nil {
		return 0, err
	}
	in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
	*in = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: a.Addr().As16(), Scope_id: zone}
	setPort(&in.Port, a.Port())
	return unix.SizeofSockaddrInet6, nil
}

// decode reads an address that the system wrote. One of another family is the zero AddrPort.
func decode(sa *unix.RawSockaddrAny) netip.AddrPort {
	switch sa.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(&in.Port))
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		a := netip.AddrFrom16(in.Addr)
		if in.Scope_id != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(in.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, port(&in.Port))
	}
	return netip.AddrPort{}
}

// Ports are in network order.
func setPort(p *uint16, v uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(v>>8), byte(v)
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}

// zoneID is the number of an interface given by name or number.
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

// withAddr calls f with an address as the system wants it.
func withAddr(a netip.AddrPort, f func(sa unsafe.Pointer, size uintptr) unix.Errno) error {
	var sa unix.RawSockaddrAny
	size, err := encode(a, &sa)
	if err != nil {
		return err
	}
	return blockedOr(f(unsafe.Pointer(&sa), size))
}

func sysBind(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unsafe.Pointer, size uintptr) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_BIND, h, uintptr(sa), size)
		return e
	})
}

func sysConnect(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unsafe.Pointer, size uintptr) unix.Errno {
		_, _, e := unix.Syscall(unix.SYS_CONNECT, h, uintptr(sa), size)
		return e
	})
}

func sysBindUnix(h uintptr, path string) error {
	return unix.Bind(int(h), &unix.SockaddrUnix{Name: path})
}

func sysConnectUnix(h uintptr, path string) error {
	err := unix.Connect(int(h), &unix.SockaddrUnix{Name: path})
	if e, ok := err.(unix.Errno); ok {
		return blockedOr(e)
	}
	return err
}

func sysLocalAddr(h uintptr) netip.AddrPort  { return name(unix.SYS_GETSOCKNAME, h) }
func sysRemoteAddr(h uintptr) netip.AddrPort { return name(unix.SYS_GETPEERNAME, h) }

func name(trap, h uintptr) netip.AddrPort {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	if _, _, e := unix.RawSyscall(trap, h, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); e != 0 {
		return netip.AddrPort{}
	}
	return decode(&sa)
}

func sysLocalPath(h uintptr) string {
	sa, err := unix.Getsockname(int(h))
	if err != nil {
		return ""
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok {
		return u.Name
	}
	return ""
}
