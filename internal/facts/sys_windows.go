package facts

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	ws2    = windows.NewLazySystemDLL("ws2_32.dll")
	wsRecv = ws2.NewProc("recv")
	wsSend = ws2.NewProc("send")
)

const (
	msgOOB  = 1
	msgPeek = 2
)

// peek reports whether a receive would not block.
func peek(h uintptr) bool {
	var b [1]byte
	r, _, err := syscall.SyscallN(wsRecv.Addr(), h, uintptr(unsafe.Pointer(&b)), 1, msgPeek)
	return int32(r) >= 0 || err != windows.WSAEWOULDBLOCK
}

func sendUrgent(h uintptr) error {
	b := [1]byte{'!'}
	if r, _, err := syscall.SyscallN(wsSend.Addr(), h, uintptr(unsafe.Pointer(&b)), 1, msgOOB); int32(r) != 1 {
		return err
	}
	return nil
}

func duplicate(h uintptr) (dup, error) {
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(windows.Handle(h), windows.GetCurrentProcessId(), &info); err != nil {
		return 0, err
	}
	const fromInfo = -1
	d, err := windows.WSASocket(fromInfo, fromInfo, fromInfo, &info, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	return dup(d), err
}

func (d dup) Close() error { return windows.Closesocket(windows.Handle(d)) }

const errNotConnected = windows.WSAENOTCONN

func version() string {
	v := windows.RtlGetVersion()
	text := fmt.Sprintf("Windows %d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	wine := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version")
	if wine.Find() != nil {
		return text
	}
	p, _, _ := syscall.SyscallN(wine.Addr())
	return "Wine " + windows.BytePtrToString(*(**byte)(unsafe.Pointer(&p))) + " as " + text
}
