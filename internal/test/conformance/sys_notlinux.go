//go:build !linux

package conformance

// The cases of these sockets are absences here.
func (e *env) vsock() *socket { panic("vsock is for Linux alone") }
func (e *env) mptcp() *socket { panic("MPTCP is for Linux alone") }
