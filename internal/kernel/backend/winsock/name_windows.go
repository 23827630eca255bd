package winsock

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// NameOf returns the name of a socket. It fails for a handle that is closed or no socket.
func NameOf(handle uintptr) (n Name, err error) {
	local, err := address(getsockname, handle)
	if err == windows.WSAENOTSOCK {
		return n, err // any other error means that the socket is not bound
	}
	n.port = local.Port()
	if n.port != 0 {
		n.peer, _ = address(getpeername, handle)
	}
	return n, nil
}

var (
	ws2         = windows.NewLazySystemDLL("ws2_32.dll")
	getsockname = ws2.NewProc("getsockname")
	getpeername = ws2.NewProc("getpeername")
)

// address returns the address that proc reports. Unlike the functions of x/sys it does not allocate.
func address(proc *windows.LazyProc, handle uintptr) (a netip.AddrPort, err error) {
	var sa [16]uint64 // an address of any family, aligned
	size := int32(unsafe.Sizeof(sa))
	r, _, e := syscall.SyscallN(proc.Addr(), handle, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	if int32(r) != 0 {
		return a, e
	}
	switch *(*uint16)(unsafe.Pointer(&sa)) {
	case windows.AF_INET:
		in := (*windows.RawSockaddrInet4)(unsafe.Pointer(&sa))
		a = netip.AddrPortFrom(netip.AddrFrom4(in.Addr), in.Port)
	case windows.AF_INET6:
		in := (*windows.RawSockaddrInet6)(unsafe.Pointer(&sa))
		a = netip.AddrPortFrom(netip.AddrFrom16(in.Addr), in.Port)
	}
	return a, nil
}
