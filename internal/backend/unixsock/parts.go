//go:build unix

package unixsock

import "golang.org/x/sys/unix"

// inParts is PollNow for entries that the system has refused to poll at once. It refuses more entries than the
// process may have descriptors (that limit may have been lowered after they were opened), or than it has memory for.
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
