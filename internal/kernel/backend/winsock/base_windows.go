package winsock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// Base returns the handle by which the kernel knows a socket.
func Base(handle uintptr) (uintptr, error) {
	return base(handle, ask, func(err error) bool { return err == windows.WSAENOTSOCK })
}

func ask(handle uintptr, code uint32) (answer uintptr, err error) {
	var n uint32
	err = windows.WSAIoctl(windows.Handle(handle), code, nil, 0,
		(*byte)(unsafe.Pointer(&answer)), uint32(unsafe.Sizeof(answer)), &n, nil, 0)
	return answer, err
}
