//go:build unix

package unixsock

import "golang.org/x/sys/unix"

// seemsToListen is for the systems that do not tell (macOS, DragonFly BSD, and NetBSD and OpenBSD of some
// age). A stream socket that is neither connected, nor connecting, nor shut cannot receive; if it has an
// address all the same, it listens, or is about to: one that was bound and has yet to connect is taken for
// a listener.
func seemsToListen(fd int) bool {
	var b [1]byte
	if _, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|dontWait); err != unix.ENOTCONN && err != unix.EINVAL {
		return false
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch a := addr.(type) {
	case *unix.SockaddrInet4:
		return a.Port != 0
	case *unix.SockaddrInet6:
		return a.Port != 0
	case *unix.SockaddrUnix:
		return a.Name != "" && a.Name != "@" // none, here and on Linux
	}
	return false
}
