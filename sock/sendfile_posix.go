//go:build freebsd || dragonfly || darwin || solaris

package sock

import (
	"os"

	"golang.org/x/sys/unix"
)

// sysSendFile lets the system send, or else copies: not every system does it for every file and socket.
func sysSendFile(h uintptr, f *os.File, offset int64, n int) (sent int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(file uintptr) { sent, err = sendfile(int(h), int(file), offset, n) })
	if cerr != nil {
		return 0, os.ErrClosed // it can be nothing else, but is an error that errors.Is does not know
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
			sent = int(at - offset) // Solaris says it there, and more reliably
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
