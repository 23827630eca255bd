// Package errno is for tests: the system's errors that package syscall names differently.
package errno

import "golang.org/x/sys/windows"

// What a connection, a connect, a bind and a family of addresses may fail with. Those that package syscall has of these names are
// its own, and come from nowhere.
const (
	Reset   = windows.WSAECONNRESET
	Refused = windows.WSAECONNREFUSED
	InUse   = windows.WSAEADDRINUSE
	NoAddr  = windows.WSAEADDRNOTAVAIL
	NoV6    = windows.WSAEAFNOSUPPORT
)
