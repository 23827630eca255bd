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
	if r, _, e := syscall.SyscallN(procBind.Addr(), h, uintptr(unsafe.Pointer(&sa)), size); failed(r) {
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
	if r, _, e := syscall.SyscallN(procConnect.Addr(), h, uintptr(unsafe.Pointer(&sa)), size); failed(r) {
		return blockedOr(e)
	}
	if typ, err := windows.GetsockoptInt(windows.Handle(h), windows.SOL_SOCKET, soType); err == nil && typ == windows.SOCK_DGRAM {
		tellRefused(h, true)
	}
	return nil
}

func sysLocalAddr(h uintptr) netip.AddrPort  { return name(procGetsockname, h) }
func sysRemoteAddr(h uintptr) netip.AddrPort { return name(procGetpeername, h) }

func name(get *windows.LazyProc, h uintptr) netip.AddrPort {
	var sa rawAny
	size := int32(unsafe.Sizeof(sa))
	if r, _, _ := syscall.SyscallN(get.Addr(), h, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size))); failed(r) {
		return netip.AddrPort{}
	}
	return decode(&sa)
}
