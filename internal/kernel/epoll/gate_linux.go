package epoll

import (
	"errors"
	"os"
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

	// woken is the sticky wake-up. Wake sets it, then moves the read deadline into the past; park
	// sets its own deadline, then looks at it. So either park sees woken, or Wake's deadline comes
	// last and ends the park.
	woken atomic.Bool
	// stale tells that the deadline may be one that park did not set for itself.
	stale atomic.Bool

	// What follows belongs to the one goroutine in park.
	passed func(uintptr) bool
	look   func() bool
	opened bool
	err    error
}

func (g *gate) open(port int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	closed := event(0, 0)
	if e := ctl(fd, unix.EPOLL_CTL_ADD, port, &closed); e != 0 {
		unix.Close(fd)
		return os.NewSyscallError("epoll_ctl", e)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	g.fd, g.port = fd, port
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
	if g.err = g.watch(unix.EPOLLIN); g.err != nil {
		return true
	}
	g.opened = true
	return g.look()
}

func (g *gate) watch(events uint32) error {
	ev := event(events, 0)
	if e := ctl(g.fd, unix.EPOLL_CTL_MOD, g.port, &ev); e != 0 {
		return os.NewSyscallError("epoll_ctl", e)
	}
	return nil
}

var past = time.Unix(1, 0)

// Park implements kernel.Poller.
func (p *Poller) Park(until time.Time, look func() bool) error {
	g := &p.gate
	if !until.IsZero() || g.stale.Swap(false) {
		g.file.SetReadDeadline(until)
		g.stale.Store(!until.IsZero())
	}
	if g.woken.Swap(false) {
		return nil
	}
	g.look = look
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

// Wake implements kernel.Poller. It moves the parked goroutine's read deadline: Go's scheduler
// makes it runnable without a system call.
func (p *Poller) Wake() {
	g := &p.gate
	if g.woken.Swap(true) {
		return
	}
	g.stale.Store(true)
	g.file.SetReadDeadline(past)
}
