package sock

import (
	"sync"

	"golang.org/x/sys/windows"
)

var (
	ws2             = windows.NewLazySystemDLL("ws2_32.dll")
	procAccept      = ws2.NewProc("accept")
	procBind        = ws2.NewProc("bind")
	procConnect     = ws2.NewProc("connect")
	procGetpeername = ws2.NewProc("getpeername")
	procGetsockname = ws2.NewProc("getsockname")
	procIoctlsocket = ws2.NewProc("ioctlsocket")
	procRecv        = ws2.NewProc("recv")
	procRecvfrom    = ws2.NewProc("recvfrom")
	procSend        = ws2.NewProc("send")
	procSendto      = ws2.NewProc("sendto")
)

// Options that x/sys does not name.
const (
	soAcceptConn = 0x2
	soError      = 0x1007
	soType       = 0x1008
)

// winsock initializes Winsock, which is required before the first socket is created. It is never shut down.
var winsock = sync.OnceValue(func() error {
	var d windows.WSAData
	return windows.WSAStartup(2<<8|2, &d)
})

// failed reports whether a call returned SOCKET_ERROR, which is an int.
func wantError(r uintptr) bool { return int32(r) == -1 }

// blockedOr converts an error number to an error, or to ErrWouldBlock.
func blockedOr(e windows.Errno) error {
	switch e {
	case 0:
		return windows.WSAEINVAL // the call failed without an error number
	case windows.WSAEWOULDBLOCK:
		return ErrWouldBlock
	}
	return e
}

func blocked(err error) error {
	if err == windows.WSAEWOULDBLOCK {
		return ErrWouldBlock
	}
	return err
}
