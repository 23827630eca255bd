//go:build unix

package sock

import "golang.org/x/sys/unix"

func sysBindUnix(h uintptr, path string) error {
	return unix.Bind(int(h), &unix.SockaddrUnix{Name: path})
}

func sysConnectUnix(h uintptr, path string) error {
	return blocked(unix.Connect(int(h), &unix.SockaddrUnix{Name: path}))
}

func sysLocalPath(h uintptr) string {
	sa, err := unix.Getsockname(int(h))
	if err != nil {
		return ""
	}
	if u, ok := sa.(*unix.SockaddrUnix); ok && u.Name != "@" { // x/sys returns "@" for an unbound socket
		return u.Name
	}
	return ""
}

// blocked converts errors that mean that a call would block, or continues in the background, to ErrWouldBlock.
func blocked(err error) error {
	if err == unix.EAGAIN || err == unix.EINPROGRESS {
		return ErrWouldBlock
	}
	return err
}
