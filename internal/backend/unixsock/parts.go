//go:build unix

package unixsock

import "golang.org/x/sys/unix"

// inParts is PollNow of what the system has refused: more entries than the process may have descriptors, where that
// limit was lowered after they were opened, or than there is memory for.
func inParts(fds []unix.PollFd) int {
	half := len(fds) / 2
	if half == 0 {
		return -1
	}
	n := PollNow(fds[:half])
	if n < 0 {
		return n
	}
	k := PollNow(fds[half:])
	if k < 0 {
		return k
	}
	return n + k
}
