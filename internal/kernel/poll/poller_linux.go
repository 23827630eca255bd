// Package poll is the room of poll(2): the portable fall-back, and the second opinion in tests.
//
// A report silences its handle until the next Set (Edges is false). poll(2) knows numbers, not
// sockets, so each entry remembers its socket's inode and is checked against it before it reports.
package poll

import (
	"os"
	"sync"
	"sync/atomic"

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
	// fresh marks a stream that poll(2) reports as hung up, for ever, to nobody's use: one that
	// was never started, or one whose end has been told. The blocking poll leaves it out and
	// comes back to it from time to time.
	fresh bool
	told  bool // its end has been told
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

// Close implements kernel.Poller.
func (p *Poller) Close() error {
	if err := unix.Close(p.wake); err != nil {
		return os.NewSyscallError("close", err)
	}
	return nil
}
