package main

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// boundSilence sets maxSilence for a connection. Without it, a peer that vanishes is noticed when the system gives up sending,
// which takes up to a quarter of an hour. An error is ignored: the connection may be one that does not have the option.
func boundSilence(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = c.NetConn()
	}
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) {
				unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(maxSilence.Milliseconds()))
			})
		}
	}
}
