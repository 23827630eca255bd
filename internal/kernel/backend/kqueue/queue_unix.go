//go:build unix

package kqueue

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// A system has the functions of the kernel that a queue needs. Tests use a model.
type system interface {
	// kevent makes the steps. If steps fail, it fills out with those, and perhaps with some that succeeded,
	// as evError with the error number. Otherwise it fills out with events, unless silent is set. out must
	// have room for every step, and if silent is set for one more.
	kevent(list, out []kevent, silent bool) (int, error)
	// pending returns the conditions that a receive would find. sure is false if they are unknown.
	pending(fd int) (m backend.Mask, sure bool)
	// open returns an error if a number is closed.
	open(fd int) error
}

// A queue is the part of a Poller that changes and harvests. It does not park.
type queue struct {
	sys system

	// mu is held across the changes and the harvest of one Poll, and guards the fields below. The package
	// comment says why; the backend on epoll has such a mutex too.
	mu    sync.Mutex
	table table
	plan  plan
	errs  [batch]int64 // the errors of the planned changes
	out   [mostEvents]kevent
	// kept holds reports that did not fit into ready, in the order of their events. A socket has two knotes, so a
	// harvest takes twice as many events as reports are wanted; with fewer, a report could lack the events of one
	// knote. kept is empty whenever the kernel is asked for events.
	kept []report
}

// A report waits for a harvest with a free place. A change of its number drops it, because the change polls again.
type report struct {
	fd    int
	ready backend.Ready
}

// mostEvents is the largest number of results of one kevent(2): events, or one error for each step of a plan.
const mostEvents = max(256, batch*mostSteps+1)

// Poll implements backend.Poller. Changes and a harvest are one kevent(2) if ready has room for the errors of
// all steps. A call that returns errors harvests nothing.
func (q *queue) Poll(changes []backend.Change, ready []backend.Ready) int {
	q.mu.Lock()
	defer q.mu.Unlock()
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

// prepare plans a prefix of the changes in which no number occurs twice, and returns it.
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

// apply makes the planned changes.
func (q *queue) apply(changes []backend.Change) {
	if len(q.plan.list) == 0 {
		return
	}
	n, err := q.sys.kevent(q.plan.list, q.out[:], true)
	q.settle(changes, q.out[:max(n, 0)], err)
}

// applyAndHarvest makes the planned changes and fills ready. all is false if there may be more reports.
func (q *queue) applyAndHarvest(changes []backend.Change, ready []backend.Ready) (n int, all bool) {
	room := min(2*len(ready), len(q.out))
	k, err := q.sys.kevent(q.plan.list, q.out[:room], false)
	if err != nil || k > 0 && q.out[0].flags&evError != 0 {
		q.settle(changes, q.out[:max(k, 0)], err)
		return 0, false
	}
	// All changes have succeeded. settle makes no call then, so the events in q.out are not overwritten.
	q.settle(changes, nil, nil)
	n = q.merge(ready, 0, k)
	return n, k < room || n == len(ready)
}

// settle sets the outcome of each planned change, from the errors that the kernel returned or its failure as a whole.
func (q *queue) settle(changes []backend.Change, returned []kevent, err error) {
	b := &q.plan
	whole, failed := err.(unix.Errno)
	if failed && whole == unix.EINTR {
		failed, returned = false, nil // the changes were made nevertheless, according to kevent(2)
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
		e = unix.ENOENT // the knotes of no registration
	}
	c.Status, c.Err = status(c.Action, e), nil
	q.drop(fd)
	if c.Status == backend.Done {
		q.table.made(c.Action, fd, c.Token, c.Interest)
		return
	}
	c.Err = e
	if c.Status == backend.Absent && q.sys.open(fd) != nil {
		c.Status, c.Err = backend.Bad, unix.EBADF // macOS returns ENOENT for a closed number too
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

// harvest fills ready, which has n reports already, with the available reports.
func (q *queue) harvest(ready []backend.Ready, n int) int {
	n = q.unkeep(ready, n)
	for n < len(ready) {
		room := min(2*(len(ready)-n), len(q.out))
		k, err := q.sys.kevent(nil, q.out[:room], false)
		if err == unix.EINTR {
			continue // a caller that is about to park relies on this poll
		}
		if err != nil {
			break
		}
		n = q.merge(ready, n, k)
		if k < room {
			break
		}
		// Two events can make one report, and some make none.
	}
	return n
}

// unkeep moves kept reports to ready.
func (q *queue) unkeep(ready []backend.Ready, n int) int {
	some := min(len(q.kept), len(ready)-n)
	for _, r := range q.kept[:some] {
		ready[n] = r.ready
		if e := q.table.get(r.fd); e != nil {
			e.round, e.at = q.table.round, int32(n) // this harvest may find more of the socket
		}
		n++
	}
	q.kept = append(q.kept[:0], q.kept[some:]...)
	return n
}

// drop forgets the kept report of a number.
func (q *queue) drop(fd int) {
	q.kept = slices.DeleteFunc(q.kept, func(r report) bool { return r.fd == fd })
}

// merge turns the first k events into reports, and keeps those that do not fit into ready.
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

// has reports whether a number names the socket that is watched. It returns an error if the number is closed.
// It can cause a second report of conditions that were reported already.
func (q *queue) has(fd int) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.watches(fd) {
		return true, nil
	}
	return false, q.sys.open(fd)
}

// watches reports whether a number still names the socket that is watched, and forgets the number if not.
func (q *queue) watches(fd int) bool {
	e := q.table.get(fd)
	if e == nil {
		return false
	}
	var list [2]kevent
	n, err := q.sys.kevent(probe(list[:0], fd, e.writing), q.out[:], true)
	var errs [1]int64
	if blame([]int{fd}, q.out[:max(n, 0)], errs[:]); err != nil || errs[0] == 0 {
		return true // a call that fails as a whole gives no answer
	}
	q.drop(fd)
	q.table.forget(fd)
	return false
}
