package sock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// sysDescribe reports every socket as blocking, because Windows does not report the mode.
func sysDescribe(h uintptr) (d description, err error) {
	if err := winsock(); err != nil {
		return d, err
	}
	s := windows.Handle(h)
	typ, err := windows.GetsockoptInt(s, windows.SOL_SOCKET, soType)
	if err != nil {
		return d, err
	}
	listening, err := windows.GetsockoptInt(s, windows.SOL_SOCKET, soAcceptConn)
	if err != nil {
		return d, err
	}
	_, notTCP := windows.GetsockoptInt(s, windows.IPPROTO_TCP, windows.TCP_NODELAY) // only TCP sockets have this option
	d.stream = typ == windows.SOCK_STREAM
	d.tcp = d.stream && notTCP == nil
	d.listening = listening != 0
	d.blocking = true
	return d, nil
}

func sysDup(h uintptr) (uintptr, error) {
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(windows.Handle(h), windows.GetCurrentProcessId(), &info); err != nil {
		return 0, err
	}
	const fromInfo = -1
	s, err := windows.WSASocket(fromInfo, fromInfo, fromInfo, &info, 0, socketFlags)
	return uintptr(s), err
}

// sysDetached dissociates a socket of package net from the completion port of Go's runtime, so that Attach can
// associate it again. An error is ignored, because the socket works without that. sysDetached must be called after
// package net has closed its handle, because the system refuses while I/O is in progress.
func sysDetached(h uintptr) {
	var status windows.IO_STATUS_BLOCK
	var none struct{ port, key uintptr }
	windows.NtSetInformationFile(windows.Handle(h), &status, (*byte)(unsafe.Pointer(&none)), uint32(unsafe.Sizeof(none)),
		windows.FileReplaceCompletionInformation)
}
