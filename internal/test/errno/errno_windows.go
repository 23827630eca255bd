// Package errno provides tests with errors of the system whose names differ between systems.
package errno

import "golang.org/x/sys/windows"

// The errors of reset connections, refused connects, failed binds and unsupported address families. On Windows, package
// syscall invents numbers for its constants ECONNRESET and so on, which the system never returns.
const (
	Reset   = windows.WSAECONNRESET
	Refused = windows.WSAECONNREFUSED
	InUse   = windows.WSAEADDRINUSE
	NoAddr  = windows.WSAEADDRNOTAVAIL
	NoV6    = windows.WSAEAFNOSUPPORT
)
