package iouring

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/unixsock"
)

// Sizes of the rings. Completions that do not fit end their polls, which are then made anew: it works, but
// takes its time.
const (
	submissions = 128
	completions = 4096
)

// Poller implements kernel.Poller on one ring.
type Poller struct {
	bell bell

	// turn covers all that follows, across each system call: of two threads that submit one would only wait
	// for the other in the kernel.
	turn    sync.Mutex
	ring    ring
	pages   []*page
	watched atomic.Int32 // sockets

	// queue has the numbers whose polls have completed, in the order in which they did.
	queue fifo

	// What take has found besides reports.
	orphans []orphan  // polls that the kernel has ended
	refused []orphan  // updates that came to nothing
	failed  []failure // polls that could not be made

	sent    []int32 // numbers for which something was submitted
	recheck []int32 // those of them for which a poll was made by number, and not by Add

	threads []thread
	pinned  bool
	self    uint16 // the thread that is pinned

	harvests uint8 // since the last sweep
	swept    int   // where it ended

	fds       [chunk]unix.PollFd
	cookie    uint64
	cookieLen uint32
}

// New opens a ring and an eventfd: two descriptors.
func New() (kernel.Poller, error) { return open(completions) }

func open(completions uint32) (*Poller, error) {
	p := &Poller{}
	if err := p.ring.open(submissions, completions); err != nil {
		return nil, err
	}
	if err := p.bell.open(&p.ring); err != nil {
		p.ring.close()
		return nil, err
	}
	p.bell.listen, p.bell.calls = p.listen, p.calls
	return p, nil
}

// Edges is true: a poll goes on after a report (multishot).
func (p *Poller) Edges() bool { return true }

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
	p.turn.Lock()
	defer p.turn.Unlock()
	e, status, err := p.find(fd)
	p.submit()
	if status == kernel.Bad {
		return false, err
	}
	return e != nil, nil
}

// Poll implements kernel.Poller.
func (p *Poller) Poll(changes []kernel.Change, ready []kernel.Ready) int {
	p.turn.Lock()
	defer p.turn.Unlock()
	if len(changes) > 0 {
		p.apply(changes)
	}
	if len(ready) == 0 {
		return 0
	}
	return p.harvest(ready)
}

// Close implements kernel.Poller. The kernel lets go of the sockets a little later.
func (p *Poller) Close() error {
	err := p.bell.close()
	if e := p.ring.close(); e != nil && err == nil {
		err = e
	}
	return err
}
