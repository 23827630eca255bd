//go:build !windows

// Package errno is for tests: the system's errors that package syscall names differently.
package errno

import "syscall"

// What a connection, a connect, a bind and a family of addresses may fail with.
const (
	Reset   = syscall.ECONNRESET
	Refused = syscall.ECONNREFUSED
	InUse   = syscall.EADDRINUSE
	NoAddr  = syscall.EADDRNOTAVAIL
	NoV6    = syscall.EAFNOSUPPORT
)
