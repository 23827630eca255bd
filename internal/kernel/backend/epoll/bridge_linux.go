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

// A bridge is the netpoll bridge: it lets one goroutine wait for an epoll descriptor in Go's own
// poller, without a thread.
//
// The bridge is a second epoll descriptor, to which the port's epoll descriptor is attached. Go's
// poller watches the bridge. The bridge watches the port's descriptor while a goroutine is parked. It
// goes on after Park, because a port with few events parks again soon, and enabling and disabling the
// bridge would cost two system calls for each wake-up. But events that arrive while the port is busy
// must not wake idle threads of the runtime. So Poll disables the bridge after a few harvests without
// a Park.
//
// While the port's descriptor is attached, enabled or not, the kernel notifies the bridge of each
// event, which is a quarter of the total cost of an event. Therefore Poll detaches the port if it is
// busy enough not to park, and the next Park attaches it again (see detach).
//
// No event is lost. Park's callback enables the bridge, unless it is enabled, and then polls once.
// That poll finds events that arrived before it. An event that arrives after it finds the bridge
// enabled and makes it readable, which Go's poller reports as an edge. This holds even when the
// port's item is still on the bridge's ready list from an earlier event. Enabling the bridge reports
// nothing then, so the poll is needed; but each arrival wakes the watcher of the bridge, whether or
// not the item is on the list. Go's poller does not miss the edge either, because RawConn.Read
// forgets older edges before it calls the callback, not after.
//
// Poll cannot disable the bridge of a goroutine that is parked or about to be: parked is set, with mu
// held, before the callback's poll.
type bridge struct {
	file *os.File
	raw  syscall.RawConn
	fd   int // the bridge
	port int // the descriptor behind it
	ctl  func(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno

	// woken is the sticky wake-up. Wake sets woken, then moves the read deadline into the past. Park
	// sets its own deadline, then reads woken. So either Park sees woken, or Wake sets the deadline
	// last and ends the Park.
	woken atomic.Bool
	// stale is set if the deadline may be other than the one that the next Park needs.
	stale atomic.Bool

	mu       sync.Mutex // held to change the item on the bridge
	attached bool       // the port's descriptor is attached to the bridge
	enabled  bool       // and the bridge watches it
	parked   bool       // a goroutine in Park needs that
	item     unix.EpollEvent

	// parks counts the calls of Park, so that Poll can detect that there were none.
	parks atomic.Uint32

	// The fields below are used only by the one goroutine in Park.
	readyFunc func(uintptr) bool
	poll      func() bool
	until     time.Time
	entered   bool // parked is set
	paused    bool
	err       error
}

func (b *bridge) init(port int) error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	b.fd, b.port, b.ctl = fd, port, ctl
	if err := b.set(0); err != nil { // fails now if the system refuses nested epoll descriptors
		unix.Close(fd)
		return err
	}
	b.file = os.NewFile(uintptr(fd), "socknotify netpoll bridge")
	// A file that Go's poller refuses blocks its thread and ignores deadlines.
	if err := b.file.SetReadDeadline(time.Time{}); err != nil {
		b.file.Close()
		return err
	}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		b.file.Close()
		return err
	}
	b.readyFunc = b.ready
	return nil
}

func (b *bridge) close() error { return b.file.Close() }

// ready is the callback of RawConn.Read, which blocks if it returns false.
func (b *bridge) ready(uintptr) bool {
	if b.entered {
		return true // called again: the bridge is readable
	}
	switch err := b.enter(); {
	case err == nil:
		b.entered = true
		return b.poll()
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		return b.pause()
	default:
		b.err = err
		return true
	}
}

// pause is used if the system refuses to watch one more descriptor (max_user_watches), which must not fail
// the wait. The waiter sleeps for pauseTime, and the caller of Park polls again.
func (b *bridge) pause() bool {
	if b.paused {
		return true
	}
	b.paused = true
	if end := time.Now().Add(pauseTime); b.until.IsZero() || end.Before(b.until) {
		b.stale.Store(true)
		b.file.SetReadDeadline(end)
	}
	return b.woken.Load() || b.poll()
}

const pauseTime = time.Millisecond

// enter enables the bridge for a Park. leave must follow.
func (b *bridge) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.enabled {
		if err := b.set(unix.EPOLLIN); err != nil {
			return err
		}
	}
	b.parked = true
	return nil
}

func (b *bridge) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked = false
}

// set sets what the bridge watches. The caller holds mu.
func (b *bridge) set(events uint32) error {
	op := unix.EPOLL_CTL_MOD
	if !b.attached {
		op = unix.EPOLL_CTL_ADD // which polls at once, as MOD does
	}
	b.item = event(events, 0)
	if e := b.ctl(b.fd, op, b.port, &b.item); e != 0 {
		return os.NewSyscallError("epoll_ctl", e)
	}
	b.attached = true
	b.enabled = events != 0
	return nil
}

// disable disables the bridge, unless a goroutine is parked or about to park. It reports whether the bridge is disabled.
// If it stays enabled, that costs time and no event.
func (b *bridge) disable() bool {
	if !b.mu.TryLock() {
		return false
	}
	defer b.mu.Unlock()
	if b.parked {
		return false
	}
	return !b.enabled || b.set(0) == nil
}

// detach removes the port's descriptor from the bridge, unless a goroutine is parked or about to park.
func (b *bridge) detach() {
	if !b.mu.TryLock() {
		return
	}
	defer b.mu.Unlock()
	if b.parked || !b.attached {
		return
	}
	if b.ctl(b.fd, unix.EPOLL_CTL_DEL, b.port, &b.item) == 0 {
		b.attached, b.enabled = false, false
	}
}

var past = time.Unix(1, 0)

// Park implements backend.Poller.
func (p *Poller) Park(until time.Time, poll func() bool) error {
	b := &p.bridge
	b.parks.Add(1)
	if !until.IsZero() || b.stale.Swap(false) {
		b.file.SetReadDeadline(until)
		b.stale.Store(!until.IsZero())
	}
	if b.woken.Swap(false) {
		return nil
	}
	b.poll, b.until, b.paused = poll, until, false
	err := b.raw.Read(b.readyFunc)
	b.poll = nil
	if b.entered {
		b.entered = false
		b.leave()
	}
	b.woken.Store(false)
	switch {
	case b.err != nil:
		err, b.err = b.err, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.stale.Store(true)
		err = nil
	}
	return err
}

// Wake implements backend.Poller. It moves the read deadline of the parked goroutine into the past, by
// which Go's scheduler makes it runnable without a system call.
func (p *Poller) Wake() {
	b := &p.bridge
	if b.woken.Swap(true) {
		return
	}
	b.stale.Store(true)
	b.file.SetReadDeadline(past)
}
