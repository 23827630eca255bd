// Package poll is the room of poll(2): the portable fall-back, and the second opinion in tests.
//
// A report silences its handle until the next Set (Edges is false). poll(2) knows numbers, not
// sockets, so each entry remembers its socket's inode and is checked against it before it reports.
package poll

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/unixsock"
)

// Poller implements kernel.Poller on an array of pollfds.
type Poller struct {
	wake  int // eventfd; entry 0 of the array
	woken atomic.Bool

	mu sync.Mutex
	// fds is what poll(2) reads. A silent entry has its number complemented, which poll skips.
	fds     []unix.PollFd
	entries []entry // beside fds
	index   []int32 // handle -> position in fds; 0 is none
	next    int     // the entry that was seen last; the next scan goes on from it, so that none starves
	unseen  int     // entries whose results of the last poll(2) have not been seen
	parked  bool    // somebody blocks on a copy of fds
	kicked  bool    // and has been told to take a new copy
	fresh   int     // entries in the state of entry.fresh

	// blocking is the copy that the one goroutine in Park hands to the system.
	blocking []unix.PollFd
}

type entry struct {
	token uint64
	ino   uint64
	// fresh marks a stream that was never started. poll(2) reports it as hung up, for ever, so
	// the blocking poll leaves it out and comes back to it from time to time.
	fresh bool
}

// New opens an eventfd for wake-ups: one descriptor.
func New() (kernel.Poller, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &Poller{
		wake:    fd,
		fds:     []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}},
		entries: make([]entry, 1),
	}, nil
}

// Edges is false: poll(2) has none.
func (p *Poller) Edges() bool { return false }

// Describe implements kernel.Poller.
func (p *Poller) Describe(handle uintptr) (kernel.Kind, error) { return unixsock.Describe(handle) }

// Look implements kernel.Poller.
func (p *Poller) Look(handle uintptr) kernel.Mask { return unixsock.Look(handle) }

// Has implements kernel.Poller.
func (p *Poller) Has(handle uintptr) (bool, error) {
	fd, ok := unixsock.FD(handle)
	if !ok {
		return false, unix.EBADF
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, status, err := p.find(fd)
	if status == kernel.Bad {
		return false, err
	}
	return status == kernel.Done, nil
}

// Poll implements kernel.Poller.
func (p *Poller) Poll(changes []kernel.Change, ready []kernel.Ready) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		c.Status, c.Err = p.apply(c)
	}
	if len(changes) > 0 {
		p.kick()
	}
	if len(ready) == 0 {
		return 0
	}
	return p.harvest(ready)
}

// kick makes a parked goroutine take a new copy: to watch what was armed, and to let go of what was
// deleted, because a blocked poll(2) keeps a closed socket open.
func (p *Poller) kick() {
	if p.parked && !p.kicked {
		p.kicked = true
		p.ring()
	}
}

func inode(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// find looks an entry up and makes sure that the number still names its socket. Bad and Absent
// come with the position of what is left of the entry, or 0.
func (p *Poller) find(fd int) (at int, status kernel.Status, err error) {
	if fd < len(p.index) {
		at = int(p.index[fd])
	}
	ino, err := inode(fd)
	switch {
	case err != nil:
		return at, kernel.Bad, err
	case at == 0 || p.entries[at].ino != ino:
		return at, kernel.Absent, unix.ENOENT
	}
	return at, kernel.Done, nil
}

func (p *Poller) apply(c *kernel.Change) (kernel.Status, error) {
	fd, ok := unixsock.FD(c.Handle)
	if !ok {
		return kernel.Bad, unix.EBADF
	}
	at, status, err := p.find(fd)
	if c.Action != kernel.Add {
		if status == kernel.Done && c.Action == kernel.Set {
			p.set(at, fd, c)
			return kernel.Done, nil
		}
		if status == kernel.Done && c.Action == kernel.Mute {
			p.silence(at)
			return kernel.Done, nil
		}
		if at != 0 {
			p.drop(at, fd) // deleted, or the remains of another socket
		}
		return status, err
	}
	switch status {
	case kernel.Done:
		return kernel.Present, unix.EEXIST
	case kernel.Bad:
		return kernel.Bad, err
	}
	ino, err := inode(fd)
	if err != nil {
		return kernel.Bad, err
	}
	if at == 0 {
		at = p.append(fd)
	}
	p.entries[at].ino = ino
	p.set(at, fd, c)
	return kernel.Done, nil
}

func (p *Poller) append(fd int) int {
	for fd >= len(p.index) {
		p.index = append(p.index, make([]int32, max(64, len(p.index)))...)
	}
	at := len(p.fds)
	p.fds = append(p.fds, unix.PollFd{})
	p.entries = append(p.entries, entry{})
	p.index[fd] = int32(at)
	return at
}

// events translates the seam's interest: its low bits are poll's.
func events(m kernel.Mask) int16 {
	e := int16(m & (kernel.In | kernel.Out))
	if m&kernel.PeerClosed != 0 {
		e |= unix.POLLRDHUP
	}
	return e
}

func (p *Poller) set(at, fd int, c *kernel.Change) {
	p.setFresh(at, false)
	p.entries[at].token = c.Token
	p.fds[at] = unix.PollFd{Fd: int32(fd), Events: events(c.Interest)}
}

func (p *Poller) setFresh(at int, fresh bool) {
	if p.entries[at].fresh == fresh {
		return
	}
	p.entries[at].fresh = fresh
	if fresh {
		p.fresh++
	} else {
		p.fresh--
	}
}

func (p *Poller) silence(at int) {
	p.setFresh(at, false)
	if fd := p.fds[at].Fd; fd >= 0 {
		p.fds[at] = unix.PollFd{Fd: ^fd, Events: p.fds[at].Events}
	}
}

// drop takes an entry out and moves the last one into its place.
func (p *Poller) drop(at, fd int) {
	p.setFresh(at, false)
	p.index[fd] = 0
	last := len(p.fds) - 1
	if at != last {
		p.fds[at], p.entries[at] = p.fds[last], p.entries[last]
		moved := p.fds[at].Fd
		if moved < 0 {
			moved = ^moved
		}
		p.index[moved] = int32(at)
	}
	p.fds, p.entries = p.fds[:last], p.entries[:last]
}

// harvest reports what the last poll(2) found and nobody had room for, and only then asks again: a
// poll of everything for each few reports would cost the square of the number of sockets.
func (p *Poller) harvest(ready []kernel.Ready) int {
	n := p.scan(ready, true)
	if n == len(ready) || len(p.fds) == 1 {
		return n
	}
	reports := unixsock.PollNow(p.fds)
	if p.fresh > 0 {
		p.noticeStarted()
	}
	if reports > 0 {
		p.unseen = len(p.fds) - 1
		n += p.scan(ready[n:], false)
	}
	return n
}

// scan goes on through the entries that have not been seen since the last poll(2). What it found may be
// over by now if that was a call ago (again), so it is asked of the entry alone.
func (p *Poller) scan(ready []kernel.Ready, again bool) int {
	n := 0
	for ; p.unseen > 0 && n < len(ready); p.unseen-- {
		p.next++
		if p.next >= len(p.fds) {
			p.next = 1
		}
		if p.next >= len(p.fds) {
			break
		}
		f := &p.fds[p.next]
		if f.Fd < 0 || f.Revents == 0 || again && unixsock.PollNow(p.fds[p.next:p.next+1]) <= 0 {
			continue
		}
		if m, ok := p.report(p.next); ok {
			ready[n] = kernel.Ready{Token: p.entries[p.next].token, Mask: m}
			n++
		}
	}
	return n
}

// noticeStarted takes streams that are not reported as hung up any more back into the blocking poll.
func (p *Poller) noticeStarted() {
	for at := range p.entries {
		if p.entries[at].fresh && p.fds[at].Revents&unix.POLLHUP == 0 {
			p.setFresh(at, false)
			p.kick()
		}
	}
}

// report turns what poll(2) said of an entry into a report, or into nothing.
func (p *Poller) report(at int) (m kernel.Mask, ok bool) {
	f, e := &p.fds[at], &p.entries[at]
	m = unixsock.Mask(f.Revents)
	if m&(kernel.Err|kernel.Dead) != 0 {
		// The end of a stream and the beginning of one are easily taken for each other while
		// they happen. One look settles it.
		m = unixsock.Look(uintptr(f.Fd)) & (unixsock.Mask(f.Events) | kernel.Err | kernel.Dead | kernel.PeerClosed)
	}
	// Inode numbers are not used twice in a row, so a number that names the remembered inode now
	// did so when poll(2) looked.
	if ino, err := inode(int(f.Fd)); err != nil || ino != e.ino || f.Revents&unix.POLLNVAL != 0 {
		p.silence(at)
		return 0, false
	}
	switch {
	case m == 0:
		return 0, false // over by now; it stays armed
	case m&(kernel.Dead|kernel.PeerClosed) == kernel.Dead:
		p.setFresh(at, true)
		return 0, false
	}
	p.silence(at)
	return m, true
}

// Bounds of one blocking poll(2). It holds the sockets of its copy open, so a socket that was closed
// without OpRemove is let go of after the longest; streams that were never started are looked at
// again after the shortest, then twice that, and so on.
const (
	longest  = 250 * time.Millisecond
	shortest = time.Millisecond
)

// Park implements kernel.Poller. It blocks one thread.
//
// No report is lost: what was armed before the copy was taken is in the copy, and poll(2) finds what
// holds however long it has; what is armed later kicks, because parked was set with the copy.
func (p *Poller) Park(until time.Time, look func() bool) error {
	defer p.unpark()
	again := shortest
	fresh := p.copyFDs()
	if look() {
		return nil
	}
	for !p.woken.Load() {
		limit := longest
		if fresh {
			limit = again
			again = min(again*2, longest)
		}
		if !until.IsZero() {
			limit = min(limit, time.Until(until))
		}
		if limit < 0 {
			return nil
		}
		ts := unix.NsecToTimespec(int64(limit))
		n, err := unix.Ppoll(p.blocking, &ts, nil)
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("ppoll", err)
		}
		// A kick alone is answered here: a new copy will do.
		kicked := n == 1 && p.blocking[0].Revents != 0
		if n > 0 && !kicked {
			return nil
		}
		if kicked {
			p.quiet()
		} else if fresh && look() {
			return nil
		}
		fresh = p.copyFDs()
	}
	return nil
}

// copyFDs takes the copy to block on and tells whether there are fresh streams, which it leaves out.
func (p *Poller) copyFDs() (fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = true, false
	p.blocking = append(p.blocking[:0], p.fds...)
	if p.fresh == 0 {
		return false
	}
	for at := range p.entries {
		if f := &p.blocking[at]; p.entries[at].fresh && f.Fd >= 0 {
			f.Fd = ^f.Fd
		}
	}
	return true
}

func (p *Poller) unpark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked, p.kicked = false, false
	p.woken.Store(false) // whoever woke us is answered by our return
	p.quiet()
}

// quiet takes the count out of the eventfd.
func (p *Poller) quiet() {
	var count [8]byte
	unix.Read(p.wake, count[:])
}

// ring makes the eventfd readable.
func (p *Poller) ring() {
	one := [8]byte{1}
	unix.Write(p.wake, one[:])
}

// Wake implements kernel.Poller: woken stays until a Park has returned. It is set before the eventfd
// rings, and looked at after the eventfd was quieted.
func (p *Poller) Wake() {
	p.woken.Store(true)
	p.ring()
}

// Close implements kernel.Poller.
func (p *Poller) Close() error {
	if err := unix.Close(p.wake); err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
