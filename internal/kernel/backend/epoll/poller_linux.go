// Package epoll is the backend on epoll of Linux. Every handle is watched by edges, and the one parked
// goroutine waits in Go's own poller, by means of a netpoll bridge.
package epoll

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// Poller implements backend.Poller on one epoll descriptor.
type Poller struct {
	fd     int
	bridge bridge
	// mu is held across the changes and the harvest of one Poll. The kernel has a mutex of its own
	// for each change and each harvest. A second processor spins for that mutex and takes it, with
	// every cache line that it guards, once per system call: two goroutines that only enabled and
	// dequeued reached a quarter of the throughput of one. A goroutine that waits for mu sleeps, and
	// the other one continues with warm caches.
	mu sync.Mutex

	// harvests counts the harvests since parks changed, quiet is set once the bridge is disabled, and
	// tried once they were enough to detach. All are guarded by mu.
	harvests     int64
	quiet, tried bool
	parks        uint32

	// sockets is the number of those that were added and not deleted. It includes those that were
	// closed without being deleted, which only delays a detach.
	sockets atomic.Int64
}

// few is the number of harvests without a Park after which the bridge is disabled. A port that parks after each event
// has two: one that takes the event, and one that finds no other.
const few = 4

// busy is the number of harvests without a Park after which a port with few sockets is detached from
// its bridge. Attaching it again costs as much as detaching saves on about ten events.
const busy = 64

// enough returns the number of harvests without a Park after which the port is detached. The kernel
// walks all sockets of the port when it is attached again, at 40 to 80 ns each, with a lock of the
// whole system held. So a port with a thousand sockets is detached only after thousands of
// harvests, and one with a million practically never (BenchmarkAttach).
func (p *Poller) enough() int64 {
	n := max(p.sockets.Load(), 0)
	return busy + n*n/256
}

// New opens an epoll descriptor and its bridge: two descriptors.
func New() (backend.Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	p := &Poller{fd: fd}
	if err := p.bridge.init(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return p, nil
}

// Descriptor returns the epoll descriptor.
func (p *Poller) Descriptor() int { return p.fd }

// Edges is true: a handle stays on the interest list with EPOLLET.
func (p *Poller) Edges() bool { return true }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return unixsock.Describe(handle) }

// PollOne implements backend.Poller.
func (p *Poller) PollOne(handle uintptr) backend.Mask { return unixsock.PollOne(handle) }

// Has tries to add the socket. That changes nothing if the socket is watched already, and is undone
// if it was not. EPOLL_CTL_MOD would report it too, but would change the item.
func (p *Poller) Has(handle uintptr) (bool, error) {
	c := backend.Change{Handle: handle, Token: noToken, Action: backend.Add}
	p.apply(&c)
	switch c.Status {
	case backend.Present:
		return true, nil
	case backend.Done:
		c.Action = backend.Delete
		p.apply(&c)
		return false, nil
	}
	return false, c.Err
}

// noToken is the token of no registration.
const noToken = ^uint64(0)

// Poll implements backend.Poller: an epoll_ctl per change and one epoll_pwait that never blocks.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	for len(changes) > 0 && changes[0].Action == backend.Add {
		p.apply(&changes[0]) // may block, so it is made without the lock
		changes = changes[1:]
	}
	changes = skipIdle(changes) // makes its system call without the lock
	if len(changes) == 0 && len(ready) == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range changes {
		p.apply(&changes[i])
	}
	if len(ready) == 0 {
		return 0
	}
	if parks := p.bridge.parks.Load(); parks != p.parks {
		p.parks, p.harvests, p.quiet, p.tried = parks, 0, false, false
	} else if p.harvests++; !p.quiet && p.harvests >= few {
		p.quiet = p.bridge.disable()
	} else if !p.tried && p.harvests >= p.enough() {
		p.tried = true
		p.bridge.detach()
	}
	return p.harvest(ready)
}

// harvest lets the kernel write its events into the memory of ready itself, and converts them in place
// from the last to the first. An event is at most as large as a Ready, so event i ends at or before the
// start of Ready i+1.
func (p *Poller) harvest(ready []backend.Ready) int {
	raw := unsafe.Pointer(&ready[0])
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd), uintptr(raw), uintptr(len(ready)), 0, 0, 0)
	for e == unix.EINTR {
		// Nothing was taken, and a caller that is about to park relies on this poll.
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
	err := p.bridge.close()
	if e := unix.Close(p.fd); e != nil && err == nil {
		err = os.NewSyscallError("close", e)
	}
	return err
}

// interest and mask translate between the seam's conditions and epoll's events. The low five bits are
// the same; only PeerClosed has another bit.
func interest(m backend.Mask) uint32 {
	return uint32(m&(backend.In|backend.Urgent|backend.Out)) | uint32(m&backend.PeerClosed)<<8 | unix.EPOLLET
}

func mask(events uint32) backend.Mask {
	return backend.Mask(events&0x1f | events>>8&uint32(backend.PeerClosed))
}

// event returns the argument of epoll_ctl. The token is in the 64 bits that x/sys names Fd and Pad.
func event(events uint32, token uint64) unix.EpollEvent {
	return unix.EpollEvent{Events: events, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
}

func token(e *unix.EpollEvent) uint64 {
	return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32
}

// ctl changes one item. MOD and DEL wait only for the mutex of the epoll descriptor, which is held for
// no longer than one change or harvest, so they are raw system calls, unknown to Go's scheduler. ADD allocates,
// and takes a system-wide mutex too if the epoll descriptor is nested in another one (the bridge).
func ctl(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno {
	if op == unix.EPOLL_CTL_ADD {
		_, _, e := unix.Syscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
		return e
	}
	_, _, e := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epfd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(ev)), 0, 0)
	return e
}

// apply makes one change to an epoll descriptor.
func (p *Poller) apply(c *backend.Change) {
	if c.SkipIdle {
		return // skipIdle has found that no condition holds
	}
	fd, ok := unixsock.FD(c.Handle)
	if !ok {
		c.Status, c.Err = backend.Bad, unix.EBADF
		return
	}
	op, events := unix.EPOLL_CTL_ADD, interest(c.Interest)
	switch c.Action {
	case backend.Set:
		op = unix.EPOLL_CTL_MOD
	case backend.Suppress:
		op, events = unix.EPOLL_CTL_MOD, interest(0)
	case backend.Delete:
		op = unix.EPOLL_CTL_DEL
	}
	ev := event(events, c.Token)
	if e := ctl(p.fd, op, fd, &ev); e != 0 {
		c.Status, c.Err = status(e), e
		return
	}
	switch op {
	case unix.EPOLL_CTL_ADD:
		p.sockets.Add(1)
	case unix.EPOLL_CTL_DEL:
		p.sockets.Add(-1)
	}
	c.Status, c.Err = backend.Done, nil
}

func status(e unix.Errno) backend.Status {
	switch e {
	case unix.ENOENT:
		return backend.Absent
	case unix.EEXIST:
		return backend.Present
	case unix.EBADF, unix.EPERM, unix.EINVAL, unix.ELOOP:
		// EPERM: a file that cannot be polled; EINVAL and ELOOP: an epoll descriptor.
		return backend.Bad
	}
	return backend.Refused
}
