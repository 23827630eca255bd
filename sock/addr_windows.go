package sock

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

type (
	rawAny   = windows.RawSockaddrAny
	rawInet4 = windows.RawSockaddrInet4
	rawInet6 = windows.RawSockaddrInet6
)

const (
	afInet4   = windows.AF_INET
	afInet6   = windows.AF_INET6
	errNoAddr = windows.WSAEDESTADDRREQ
)

func sysBind(h uintptr, a netip.AddrPort) error {
	var sa rawAny
	size, err := encode(a, &sa)
	if err != nil {
		return err
	}
	if r, _, e := syscall.SyscallN(procBind.Addr(), h, uintptr(unsafe.Pointer(&sa)), size); wantError(r) {
		return blockedOr(e)
	}
	return nil
}

func sysConnect(h uintptr, a netip.AddrPort) error {
	var sa rawAny
	size, err := encode(a, &sa)
	if err != nil {
		return err
	}
	if r, _, e := syscall.SyscallN(procConnect.Addr(), h, uintptr(unsafe.Pointer(&sa)), size); wantError(r) {
		return blockedOr(e)
	}
	if typ, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soType); err == nil && typ == windows.SOCK_DGRAM {
		setConnReset(h, true)
	}
	return nil
}

func sysRemoteAddr(h uintptr) netip.AddrPort { return name(procGetpeername, h) }

func sysLocalAddr(h uintptr) netip.AddrPort {
	if a := name(procGetsockname, h); a.IsValid() {
		return a
	}
	return unbound(h)
}

// unbound returns the unspecified address of the socket's family. Other systems return it for a socket that is not
// bound; Windows fails.
func unbound(h uintptr) netip.AddrPort {
	const soProtocolInfo = 0x2005
	var info windows.WSAProtocolInfo
	size := int32(unsafe.Sizeof(info))
	if windows.Getsockopt(windows.Handle(h), windows.SOL_SOCKET, soProtocolInfo, (*byte)(unsafe.Pointer(&info)), &size) != nil {
		return netip.AddrPort{}
	}
	switch info.AddressFamily {
	case windows.AF_INET:
		return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	case windows.AF_INET6:
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPort{}
}

func name(get *windows.LazyProc, h uintptr) netip.AddrPort {
	var sa rawAny
	size := int32(unsafe.Sizeof(sa))
	if r, _, _ := syscall.SyscallN(get.Addr(), h, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); wantError(r) {
		return netip.AddrPort{}
	}
	return decode(&sa)
}
