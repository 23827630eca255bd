package sock

import (
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

type (
	rawAny   = unix.RawSockaddrAny
	rawInet4 = unix.RawSockaddrInet4
	rawInet6 = unix.RawSockaddrInet6
)

const (
	afInet4   = unix.AF_INET
	afInet6   = unix.AF_INET6
	errNoAddr = unix.EDESTADDRREQ
)

// withAddr calls f with the system's representation of a.
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
