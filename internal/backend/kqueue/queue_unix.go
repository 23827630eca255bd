//go:build unix

package kqueue

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// A system is what a queue needs of the kernel. In the tests it is a model.
type system interface {
	// kevent makes the steps. If any fails it returns in out those that did, and perhaps some that did
	// not, as evError with the error number; or else events, if silent does not forbid them. out has room
	// for every step, and if silent for one more.
	kevent(list, out []kevent, silent bool) (int, error)
	// pending tells what a receive would come to, if it can.
	pending(fd int) (m backend.Mask, sure bool)
	// open returns the error of a number that is closed.
	open(fd int) error
}

// A queue is the kqueue's part of a Poller that does not park.
type queue struct {
	sys system

	// turn is held across the changes and the harvest of one Poll, and guards what follows. See the
	// package's documentation, and why the backend of epoll has one.
	turn  sync.Mutex
	table table
	plan  plan
	errs  [batch]int64 // of the planned changes
	out   [mostEvents]kevent
	// kept are reports that there was no room for, in the order of their events. A socket has two knotes, so twice
	// as many events are taken as reports are wanted: fewer would tell half of a socket. It is empty whenever
	// the kernel is asked for events.
	kept []report
}

// A report is one that waits for a harvest with room. A change of its number drops it, for that looks again.
type report struct {
	fd    int
	ready backend.Ready
}

// mostEvents is how much one kevent(2) returns at most: events, or one error for each step of a plan.
const mostEvents = max(256, batch*mostSteps+1)

// Poll implements backend.Poller. Changes and a harvest are one kevent(2) where the caller's room is large
// enough for every error that there could be: a call that returns errors harvests nothing.
func (q *queue) Poll(changes []backend.Change, ready []backend.Ready) int {
	q.turn.Lock()
	defer q.turn.Unlock()
	q.table.round++
	for len(changes) > 0 {
		some := q.prepare(changes)
		changes = changes[len(some):]
		if len(changes) > 0 || len(q.plan.list) == 0 || len(ready) < len(q.plan.list) || len(q.kept) > 0 {
			q.apply(some)
		} else if n, all := q.applyAndHarvest(some, ready); all {
			return n
		} else {
			return q.harvest(ready, n)
		}
	}
	return q.harvest(ready, 0)
}

// prepare plans the first of the changes, with no number among them twice, and returns them.
func (q *queue) prepare(changes []backend.Change) []backend.Change {
	q.plan.reset()
	for i := range changes {
		c := &changes[i]
		fd, ok := unixsock.FD(c.Handle)
		switch {
		case !ok:
			c.Status, c.Err = backend.Bad, unix.EBADF
		case !q.plan.takes(fd):
			return changes[:i]
		case c.Action == backend.Add && q.watches(fd):
			c.Status, c.Err = backend.Present, unix.EEXIST
		default:
			q.plan.add(i, fd, c, q.table.get(fd) != nil)
		}
	}
	return changes
}

// apply makes the changes that are planned.
func (q *queue) apply(changes []backend.Change) {
	if len(q.plan.list) == 0 {
		return
	}
	n, err := q.sys.kevent(q.plan.list, q.out[:], true)
	q.settle(changes, q.out[:max(n, 0)], err)
}

// applyAndHarvest also fills ready. all is false where there may be more to be had.
func (q *queue) applyAndHarvest(changes []backend.Change, ready []backend.Ready) (n int, all bool) {
	room := min(2*len(ready), len(q.out))
	k, err := q.sys.kevent(q.plan.list, q.out[:room], false)
	if err != nil || k > 0 && q.out[0].flags&evError != 0 {
		q.settle(changes, q.out[:max(k, 0)], err)
		return 0, false
	}
	// All have succeeded. Settling that makes no call, so the events stay where they are.
	q.settle(changes, nil, nil)
	n = q.merge(ready, 0, k)
	return n, k < room || n == len(ready)
}

// settle gives each planned change its outcome: the kernel has returned some errors, or failed as a whole.
func (q *queue) settle(changes []backend.Change, returned []kevent, err error) {
	b := &q.plan
	whole, failed := err.(unix.Errno)
	if failed && whole == unix.EINTR {
		failed, returned = false, nil // the changes have been made all the same, says kevent(2)
	}
	if !failed {
		blame(b.fds, returned, q.errs[:len(b.fds)])
	}
	for i, fd := range b.fds {
		e := whole
		if !failed {
			e = unix.Errno(q.errs[i])
		}
		q.settleOne(&changes[b.at[i]], fd, e)
	}
}

func (q *queue) settleOne(c *backend.Change, fd int, e unix.Errno) {
	watched := q.table.get(fd) != nil
	if !watched && c.Action != backend.Add && e == 0 {
		e = unix.ENOENT // nobody's knotes
	}
	c.Status, c.Err = status(c.Action, e), nil
	q.drop(fd)
	if c.Status == backend.Done {
		q.table.made(c.Action, fd, c.Token, c.Interest)
		return
	}
	c.Err = e
	if c.Status == backend.Absent && q.sys.open(fd) != nil {
		c.Status, c.Err = backend.Bad, unix.EBADF // macOS says ENOENT also of a closed number
	}
	if c.Status == backend.Refused && c.Action != backend.Add {
		return
	}
	if c.Action == backend.Add || c.Action == backend.Set && watched {
		var list [3]kevent
		q.sys.kevent(remove(list[:0], fd), q.out[:], true)
	}
	q.table.forget(fd)
}

// harvest fills ready, of which n are reports already, with what there is.
func (q *queue) harvest(ready []backend.Ready, n int) int {
	n = q.unkeep(ready, n)
	for n < len(ready) {
		room := min(2*(len(ready)-n), len(q.out))
		k, err := q.sys.kevent(nil, q.out[:room], false)
		if err == unix.EINTR {
			continue // a caller that is about to park relies on this look
		}
		if err != nil {
			break
		}
		n = q.merge(ready, n, k)
		if k < room {
			break
		}
		// Two events can be one report, and some are none.
	}
	return n
}

// unkeep hands out what was kept.
func (q *queue) unkeep(ready []backend.Ready, n int) int {
	some := min(len(q.kept), len(ready)-n)
	for _, r := range q.kept[:some] {
		ready[n] = r.ready
		if e := q.table.get(r.fd); e != nil {
			e.round, e.at = q.table.round, int32(n) // for what else this harvest finds of the socket
		}
		n++
	}
	q.kept = append(q.kept[:0], q.kept[some:]...)
	return n
}

// drop forgets what was kept of a number.
func (q *queue) drop(fd int) {
	q.kept = slices.DeleteFunc(q.kept, func(r report) bool { return r.fd == fd })
}

// merge turns the first k events into reports, and keeps those that there is no room for.
func (q *queue) merge(ready []backend.Ready, n, k int) int {
	for i := range k {
		fd := q.out[i].fd
		m, at := q.table.merge(q.out[i], q.sys.pending)
		switch {
		case m == 0:
		case at == none && n < len(ready):
			e := q.table.get(fd)
			ready[n] = backend.Ready{Token: e.token, Mask: m}
			e.at = int32(n)
			n++
		case at == none:
			e := q.table.get(fd)
			e.at = int32(len(ready) + len(q.kept))
			q.kept = append(q.kept, report{fd, backend.Ready{Token: e.token, Mask: m}})
		case int(at) < len(ready):
			ready[at].Mask |= m
		default:
			q.kept[int(at)-len(ready)].ready.Mask |= m
		}
	}
	return n
}

// has reports whether a number names the socket that is watched; the error is that of a closed one. It can
// cause a report of what has been reported already.
func (q *queue) has(fd int) (bool, error) {
	q.turn.Lock()
	defer q.turn.Unlock()
	if q.watches(fd) {
		return true, nil
	}
	return false, q.sys.open(fd)
}

// watches asks the kernel whether a number still names the socket that is watched, and forgets it if not.
func (q *queue) watches(fd int) bool {
	e := q.table.get(fd)
	if e == nil {
		return false
	}
	var list [2]kevent
	n, err := q.sys.kevent(probe(list[:0], fd, e.writing), q.out[:], true)
	var errs [1]int64
	if blame([]int{fd}, q.out[:max(n, 0)], errs[:]); err != nil || errs[0] == 0 {
		return true // a call that fails as a whole says nothing
	}
	q.drop(fd)
	q.table.forget(fd)
	return false
}
