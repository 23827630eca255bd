//go:build freebsd || dragonfly || illumos

package sock

import "golang.org/x/sys/unix"

func acceptSocket(fd int) (int, error) {
	c, _, err := unix.Accept4(fd, creationFlags)
	return c, err
}
