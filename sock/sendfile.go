//go:build freebsd || dragonfly || darwin || solaris

package sock

import (
	"os"

	"golang.org/x/sys/unix"
)

// sysSendFile uses sendfile(2). If the system does not support that for this file and socket, it copies.
func sysSendFile(h uintptr, f *os.File, offset int64, n int) (sent int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(file uintptr) { sent, err = sendfile(int(h), int(file), offset, n) })
	if cerr != nil {
		return 0, os.ErrClosed // cerr means that f is closed, but does not wrap os.ErrClosed
	}
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.ENOTSUP || err == unix.EINVAL {
		return copyFile(h, f, offset, n)
	}
	return sent, blocked(sendErr(err))
}

func sendfile(h, file int, offset int64, n int) (int, error) {
	for {
		at := offset
		sent, err := unix.Sendfile(h, file, &at, n)
		if at != offset {
			sent = int(at - offset) // on Solaris, at is more reliable than the result
		}
		switch {
		case err == nil:
			return sent, nil
		case err != unix.EAGAIN && err != unix.EINTR && (err != unix.EINVAL || at == offset):
			return 0, err
		case sent > 0: // and then would have blocked, or, on Solaris, found the file's end
			return sent, nil
		case err != unix.EINTR:
			return 0, err
		}
	}
}
