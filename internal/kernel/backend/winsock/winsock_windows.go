// Package winsock describes sockets for the backends of Windows.
package winsock

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// Start initializes Winsock. Package net does so only for programs that use its sockets.
var Start = sync.OnceValue(func() error {
	var data windows.WSAData
	return windows.WSAStartup(0x202, &data)
})

const (
	soType       = 0x1008
	soAcceptConn = 0x0002
)

func option(s windows.Handle, option int32) (value int32, err error) {
	size := int32(unsafe.Sizeof(value))
	err = windows.Getsockopt(s, windows.SOL_SOCKET, option, (*byte)(unsafe.Pointer(&value)), &size)
	return value, err
}

// Describe returns the kind of a socket. The error is WSAENOTSOCK for a handle that is closed or no socket.
func Describe(handle uintptr) (backend.Kind, error) {
	s := windows.Handle(handle)
	kind, err := option(s, soType)
	// Every socket has a type. Wine 8 returns WSAEINVAL for the null device now and then.
	if err == windows.WSAEOPNOTSUPP || err == windows.WSAEINVAL {
		err = windows.WSAENOTSOCK
	}
	if err != nil {
		return 0, err
	}
	if kind != windows.SOCK_STREAM && kind != windows.SOCK_SEQPACKET {
		return backend.Datagram, nil
	}
	if on, err := option(s, soAcceptConn); err == nil && on != 0 {
		return backend.Listener, nil
	}
	return backend.Stream, nil
}
