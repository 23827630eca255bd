//go:build netbsd || openbsd

package sock

import "syscall"

// acceptSocket uses package syscall's Accept4, because x/sys has none here.
func acceptSocket(fd int) (int, error) {
	c, _, err := syscall.Accept4(fd, atBirth)
	return c, err
}
