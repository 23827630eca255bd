//go:build !windows

// Package errno is for tests: the system's errors that package syscall names differently.
package errno

import "syscall"

// What a connection, a connect and a bind may fail with.
const (
	Reset   = syscall.ECONNRESET
	Refused = syscall.ECONNREFUSED
	InUse   = syscall.EADDRINUSE
)
