//go:build !windows

// Package errno provides tests with errors of the system whose names differ between systems.
package errno

import "syscall"

// The errors of reset connections, refused connects, failed binds and unsupported address families.
const (
	Reset   = syscall.ECONNRESET
	Refused = syscall.ECONNREFUSED
	InUse   = syscall.EADDRINUSE
	NoAddr  = syscall.EADDRNOTAVAIL
	NoV6    = syscall.EAFNOSUPPORT
)
