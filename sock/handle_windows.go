package sock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// sysDescribe calls every socket blocking: the system does not tell.
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
	_, notTCP := windows.GetsockoptInt(s, windows.IPPROTO_TCP, windows.TCP_NODELAY) // which only TCP answers
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

// sysDetached takes a socket that was package net's off the completion port of Go's runtime. The socket
// works without; what it makes possible is to associate it with another, as Attach does. The system refuses
// where I/O is under way, and therefore it comes when package net has closed its handle.
func sysDetached(h uintptr) {
	var status windows.IO_STATUS_BLOCK
	var none struct{ port, key uintptr }
	windows.NtSetInformationFile(windows.Handle(h), &status, (*byte)(unsafe.Pointer(&none)), uint32(unsafe.Sizeof(none)),
		windows.FileReplaceCompletionInformation)
}
