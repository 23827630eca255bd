// Package epoll is the backend of Linux' epoll: every handle is watched by edges, and the one parked
// goroutine waits in Go's own poller, behind a gate.
package epoll

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/unixsock"
)

// Poller implements backend.Poller on one epoll descriptor.
type Poller struct {
	fd   int
	gate gate
	// turn is held across the changes and the harvest of one Poll. The kernel has a mutex of its own
	// around each of them, for which a second processor spins, and takes it over with every cache
	// line that it guards, once per system call: two goroutines that only enable and dequeue settled
	// at a quarter of the throughput of one. Whoever has to wait here sleeps, and leaves the
	// processor that has its turn to go on with warm caches.
	turn sync.Mutex

	// How many harvests there were since parks changed. Whoever has the turn has these.
	harvests int
	parks    uint32
}

// busy is how many harvests without a park are enough to take the port out of its gate. Getting back in
// costs as much as some ten events cost less meanwhile.
const busy = 64

// New opens an epoll descriptor and its gate: two descriptors.
func New() (backend.Poller, error) {
	p, err := Open()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Open is New for package ring, which embeds the Poller.
func Open() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &Poller{fd: fd}
	if err := p.gate.init(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return p, nil
}

// Descriptor is the epoll descriptor.
func (p *Poller) Descriptor() int { return p.fd }

// Edges is true: a handle stays on the interest list with EPOLLET.
func (p *Poller) Edges() bool { return true }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return unixsock.Describe(handle) }

// Look implements backend.Poller.
func (p *Poller) Look(handle uintptr) backend.Mask { return unixsock.Look(handle) }

// Has tries to add the socket: that changes nothing where it is there already, and is undone where
// it is not. (A MOD would answer too, but change what it finds.)
func (p *Poller) Has(handle uintptr) (bool, error) {
	c := backend.Change{Handle: handle, Token: nobody, Action: backend.Add}
	apply(p.fd, &c)
	switch c.Status {
	case backend.Present:
		return true, nil
	case backend.Done:
		c.Action = backend.Delete
		apply(p.fd, &c)
		return false, nil
	}
	return false, c.Err
}

// nobody is the token of no registration.
const nobody = ^uint64(0)

// Poll implements backend.Poller: an epoll_ctl per change and one epoll_pwait that never blocks.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	for len(changes) > 0 && changes[0].Action == backend.Add {
		apply(p.fd, &changes[0]) // may block, so nobody is kept waiting for it
		changes = changes[1:]
	}
	changes = glance(changes) // before anybody is kept waiting
	if len(changes) == 0 && len(ready) == 0 {
		return 0
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	for i := range changes {
		apply(p.fd, &changes[i])
	}
	if len(ready) == 0 {
		return 0
	}
	if parks := p.gate.parks.Load(); parks != p.parks {
		p.parks, p.harvests = parks, 0
	} else if p.harvests++; p.harvests == busy {
		p.gate.detach()
	}
	return p.harvest(ready)
}

// harvest lets the kernel write its events into the memory of ready itself, and spreads them out
// from the last to the first: an event is at most as large as a Ready, so event i never lies
// beyond the start of Ready i+1.
func (p *Poller) harvest(ready []backend.Ready) int {
	raw := unsafe.Pointer(&ready[0])
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(raw), uintptr(len(ready)), 0, 0, 0)
	for e == unix.EINTR {
		// Nothing was taken, and a caller that is about to park relies on this look.
		n, _, e = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(raw), uintptr(len(ready)), 0, 0, 0)
	}
	if e != 0 {
		return 0
	}
	for i := int(n) - 1; i >= 0; i-- {
		ev := *(*unix.EpollEvent)(unsafe.Add(raw, uintptr(i)*unsafe.Sizeof(unix.EpollEvent{})))
		ready[i] = backend.Ready{Token: token(&ev), Mask: mask(ev.Events)}
	}
	return int(n)
}

// An event must fit into a Ready, and Ready must hold no pointer.
var _ [unsafe.Sizeof(backend.Ready{}) - unsafe.Sizeof(unix.EpollEvent{})]byte

// Close implements backend.Poller.
func (p *Poller) Close() error {
	err := p.gate.close()
	if e := unix.Close(p.fd); e != nil && err == nil {
		err = os.NewSyscallError("close", e)
	}
	return err
}
