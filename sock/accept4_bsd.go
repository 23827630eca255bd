//go:build netbsd || openbsd

package sock

import "syscall"

// acceptSocket uses syscall.Accept4, because x/sys does not provide it on these systems.
func acceptSocket(fd int) (int, error) {
	c, _, err := syscall.Accept4(fd, creationFlags)
	return c, err
}
