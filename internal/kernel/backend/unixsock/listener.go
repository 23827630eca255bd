//go:build unix

package unixsock

import "golang.org/x/sys/unix"

// seemsToListen reports whether a stream socket is probably a listener. It is used where
// SO_ACCEPTCONN fails (macOS, DragonFly BSD, and older NetBSD and OpenBSD). A stream socket that is neither
// connected, nor connecting, nor shut down cannot receive. If such a socket has an address, it listens or
// is about to. A socket that was bound and has yet to connect is mistaken for a listener.
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
		return a.Name != "" && a.Name != "@" // no name, on these systems and on Linux
	}
	return false
}
