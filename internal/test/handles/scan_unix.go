//go:build unix

package handles

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// most bounds the numbers that scan tries, where the process may have more descriptors than tests open.
const most = 1 << 14

// scan finds the open descriptors by trying every number, as a system that lists none allows it. A socket's kind is
// "socket:" and a pipe's "pipe:", as on Linux.
func scan() []string {
	limit := uint64(most)
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		limit = min(limit, uint64(l.Cur))
	}
	var list []string
	for fd := range int(limit) {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue // closed by now
		}
		kind := "file"
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFSOCK:
			kind = "socket:"
		case unix.S_IFIFO:
			kind = "pipe:"
		}
		list = append(list, fmt.Sprintf("%d %s[%d]", fd, kind, st.Ino))
	}
	slices.Sort(list)
	return list
}
