package kqueue

import (
	"slices"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// batch is the largest number of changes of one kevent(2).
const batch = 32

// A plan is a list of changes for one kevent(2).
type plan struct {
	list []kevent
	fds  []int // the numbers of the changes
	at   []int // the indexes of the changes in the caller's slice
}

func (b *plan) reset() { b.list, b.fds, b.at = b.list[:0], b.fds[:0], b.at[:0] }

// takes reports whether the plan can take a change of a number.
func (b *plan) takes(fd int) bool { return len(b.fds) < batch && !slices.Contains(b.fds, fd) }

// add plans a change. If the number is not watched, the plan only makes the kernel return the error.
func (b *plan) add(at, fd int, c *backend.Change, watched bool) {
	b.fds, b.at = append(b.fds, fd), append(b.at, at)
	if watched || c.Action == backend.Add {
		b.list = steps(b.list, c.Action, fd, c.Interest)
	} else {
		b.list = probe(b.list, fd, false)
	}
}
