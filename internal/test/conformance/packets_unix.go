//go:build unix

package conformance

import (
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/sockettest"
)

// packets makes a connected pair of Unix sequenced-packet sockets; the case closes them.
func (e *env) packets() (a, b fd) {
	fds, err := sockettest.UnixPair(unix.SOCK_SEQPACKET)
	if err != nil {
		e.Fatalf("socketpair: %v", err)
	}
	return fd(fds[0]), fd(fds[1])
}
