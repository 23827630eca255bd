package lost

import "golang.org/x/sys/windows"

var (
	silent  = []error{windows.WSAESHUTDOWN, windows.WSAENOTCONN}
	certain = []error{windows.WSAECONNRESET, windows.WSAECONNREFUSED, windows.WSAECONNABORTED,
		windows.WSAETIMEDOUT, windows.WSAENETRESET}
	possible = []error{windows.WSAEHOSTUNREACH, windows.WSAENETUNREACH, windows.WSAENETDOWN}
)
