package epoll

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A gate lets one goroutine wait for an epoll descriptor in Go's own poller, without a thread.
//
// It is a second epoll descriptor that holds the first. Go's poller watches the gate; the gate
// watches the port's descriptor only while somebody is parked, so that events which arrive while
// the port is busy wake no idle thread of the runtime.
//
// As long as the gate holds the port's descriptor, watching or not, the kernel tells the gate of each
// event, a quarter of what an event costs in all. So a port that is busy enough not to park is taken
// out of the gate, and put back in by the next one who parks (see detach).
//
// Why no event is lost: park's callback opens the gate and then looks. An event before the look is
// found by it. An event after it finds the gate open and makes it readable, which Go's poller
// reports by its edge. That holds even when the port's item still lies on the gate's ready list
// from an earlier time (then opening the gate reports nothing, which is what the look is for):
// each arrival wakes whoever watches the gate, whether or not the item was on the list. Go's
// poller cannot miss the edge either: RawConn.Read forgets older edges before it calls the
// callback, not after.
//
// The gate is closed again before park returns, by the goroutine that opened it, so no later
// parker's opening can be undone.
type gate struct {
	file *os.File
	raw  syscall.RawConn
	fd   int // the gate
	port int // the descriptor behind it
	ctl  func(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno

	// woken is the sticky wake-up. Wake sets it, then moves the read deadline into the past; park
	// sets its own deadline, then looks at it. So either park sees woken, or Wake's deadline comes
	// last and ends the park.
	woken atomic.Bool
	// stale tells that the deadline may be one that park did not set for itself.
	stale atomic.Bool

	mu   sync.Mutex // held to change what the gate holds
	held bool       // the gate holds the port's descriptor
	open bool       // and watches it
	item unix.EpollEvent

	// parks counts, so that whoever polls can see that nobody does.
	parks atomic.Uint32

	// What follows belongs to the one goroutine in park.
	passed  func(uintptr) bool
	look    func() bool
	until   time.Time
	opened  bool
	napping bool
	err     error
}

func (g *gate) init(port int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	g.fd, g.port, g.ctl = fd, port, ctl
	if err := g.watch(0); err != nil { // what keeps one descriptor from holding another comes to light now
		unix.Close(fd)
		return err
	}
	g.file = os.NewFile(uintptr(fd), "socknotify gate")
	// A file that Go's poller refused would block its thread and ignore deadlines.
	if err := g.file.SetReadDeadline(time.Time{}); err != nil {
		g.file.Close()
		return err
	}
	if g.raw, err = g.file.SyscallConn(); err != nil {
		g.file.Close()
		return err
	}
	g.passed = g.pass
	return nil
}

func (g *gate) close() error { return g.file.Close() }

// pass is RawConn.Read's callback: false means sleep.
func (g *gate) pass(uintptr) bool {
	if g.opened {
		return true // woken by the gate
	}
	switch err := g.watch(unix.EPOLLIN); {
	case err == nil:
		g.opened = true
		return g.look()
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		return g.nap()
	default:
		g.err = err
		return true
	}
}

// nap is for a system without room for one watch more (max_user_watches), which must not end a wait: the
// parker sleeps a little, and whoever called Park looks again.
func (g *gate) nap() bool {
	if g.napping {
		return true
	}
	g.napping = true
	if end := time.Now().Add(napTime); g.until.IsZero() || end.Before(g.until) {
		g.stale.Store(true)
		g.file.SetReadDeadline(end)
	}
	return g.woken.Load() || g.look()
}

const napTime = time.Millisecond

func (g *gate) watch(events uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	op := unix.EPOLL_CTL_MOD
	if !g.held {
		op = unix.EPOLL_CTL_ADD // which looks at once, as MOD does
	}
	g.item = event(events, 0)
	if e := g.ctl(g.fd, op, g.port, &g.item); e != 0 {
		return os.NewSyscallError("epoll_ctl", e)
	}
	g.held = true
	g.open = events != 0
	return nil
}

// detach takes the port's descriptor out of the gate, unless somebody is parked or about to.
func (g *gate) detach() {
	if !g.mu.TryLock() {
		return
	}
	defer g.mu.Unlock()
	if g.open || !g.held {
		return
	}
	if g.ctl(g.fd, unix.EPOLL_CTL_DEL, g.port, &g.item) == 0 {
		g.held = false
	}
}

var past = time.Unix(1, 0)

// Park implements backend.Poller.
func (p *Poller) Park(until time.Time, look func() bool) error {
	g := &p.gate
	g.parks.Add(1)
	if !until.IsZero() || g.stale.Swap(false) {
		g.file.SetReadDeadline(until)
		g.stale.Store(!until.IsZero())
	}
	if g.woken.Swap(false) {
		return nil
	}
	g.look, g.until, g.napping = look, until, false
	err := g.raw.Read(g.passed)
	g.look = nil
	if g.opened {
		g.opened = false
		if e := g.watch(0); e != nil && err == nil {
			err = e
		}
	}
	g.woken.Store(false)
	switch {
	case g.err != nil:
		err, g.err = g.err, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		g.stale.Store(true)
		err = nil
	}
	return err
}

// Wake implements backend.Poller. It moves the parked goroutine's read deadline: Go's scheduler
// makes it runnable without a system call.
func (p *Poller) Wake() {
	g := &p.gate
	if g.woken.Swap(true) {
		return
	}
	g.stale.Store(true)
	g.file.SetReadDeadline(past)
}
