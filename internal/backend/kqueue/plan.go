package kqueue

import (
	"slices"

	"github.com/socknotify/socknotify/internal/backend"
)

// batch is how many changes one kevent(2) makes at most.
const batch = 32

// A plan is the changes that one kevent(2) is to make.
type plan struct {
	list []kevent
	fds  []int // the changes' numbers
	at   []int // and their places among the caller's
}

func (b *plan) reset() { b.list, b.fds, b.at = b.list[:0], b.fds[:0], b.at[:0] }

// takes reports whether there is room for a change of a number.
func (b *plan) takes(fd int) bool { return len(b.fds) < batch && !slices.Contains(b.fds, fd) }

// add plans a change. One of a number that is not watched only asks the kernel for the error.
func (b *plan) add(at, fd int, c *backend.Change, watched bool) {
	b.fds, b.at = append(b.fds, fd), append(b.at, at)
	if watched || c.Action == backend.Add {
		b.list = steps(b.list, c.Action, fd, c.Interest)
	} else {
		b.list = probe(b.list, fd, false)
	}
}
