package iouring

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A bell lets one goroutine wait for the ring in Go's own poller, without a thread. It is an eventfd that
// the kernel signals for each completion while somebody is parked; a word that it shares with us tells it
// when. The eventfd is never read: Go's poller goes by edges, and each signal is one.
type bell struct {
	file *os.File
	raw  syscall.RawConn
	fd   int

	// woken is the sticky wake-up. Wake sets it, then moves the read deadline into the past; Park sets its
	// own deadline, then looks at it. So either Park sees woken, or Wake's deadline comes last.
	woken atomic.Bool
	// stale tells that the deadline may be one that Park did not set for itself.
	stale atomic.Bool
	// parked is set before the number of watched sockets is read, and read after that was changed.
	parked atomic.Bool

	// What follows belongs to the one goroutine in Park.
	deadline time.Time // the read deadline
	passed   func(uintptr) bool
	listen   func()
	calls    func() bool
	look     func() bool
	opened   bool
}

func (b *bell) open(r *ring) error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	r.cqFlags.Store(cqEventfdDisabled)
	n := int32(fd)
	if _, _, e := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), registerEventfd, uintptr(unsafe.Pointer(&n)), 1, 0, 0); e != 0 {
		unix.Close(fd)
		return os.NewSyscallError("io_uring_register", e)
	}
	b.fd = fd
	b.file = os.NewFile(uintptr(fd), "socknotify bell")
	// A file that Go's poller refused would block its thread and ignore deadlines.
	if err := b.file.SetReadDeadline(time.Time{}); err != nil {
		b.file.Close()
		return err
	}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		b.file.Close()
		return err
	}
	b.passed = b.pass
	return nil
}

func (b *bell) close() error { return b.file.Close() }

// pass is RawConn.Read's callback: false means sleep.
func (b *bell) pass(uintptr) bool {
	if b.opened {
		return b.calls() // it also rings for what was taken before it was listened to
	}
	b.opened = true
	b.listen()
	return b.look()
}

// listen has the kernel ring for what completes from here on. A completion that it takes this for not to be
// rung for is in the queue when listen returns: the kernel queues, and looks at the word, under a mutex that
// a submission takes too.
func (p *Poller) listen() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.ring.cqFlags.Store(0)
	if p.ring.room() > 0 {
		p.ring.push(sqe{op: opNop, flags: flagSkipSuccess, data: control})
	}
	p.submit()
}

// calls tells whether there is anything to look at.
func (p *Poller) calls() bool {
	p.turn.Lock()
	defer p.turn.Unlock()
	r := &p.ring
	return r.cqHead.Load() != r.cqTail.Load() || r.sqFlags.Load()&sqOverflow != 0 || p.queue.length > 0 || len(p.orphans) > 0
}

var past = time.Unix(1, 0)

// Park implements kernel.Poller. While there are sockets to be looked at it wakes up for that now and then.
func (p *Poller) Park(until time.Time, look func() bool) error {
	b := &p.bell
	b.look = look
	b.parked.Store(true)
	defer b.leave(&p.ring)
	for {
		b.wakeUpBy(until, p.watched.Load() > 0)
		if b.woken.Load() {
			return nil
		}
		b.opened = false
		err := b.raw.Read(b.passed)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		b.stale.Store(true)
		if b.woken.Load() || !until.IsZero() && !time.Now().Before(until) {
			return nil
		}
		p.rounds()
	}
}

// wakeUpBy sets the read deadline: until, or earlier where there are rounds to be made.
func (b *bell) wakeUpBy(until time.Time, rounds bool) {
	stale := b.stale.Swap(false)
	if until.IsZero() && !rounds {
		if stale || !b.deadline.IsZero() {
			b.deadline = time.Time{}
			b.file.SetReadDeadline(b.deadline)
		}
		return
	}
	now := time.Now()
	if !stale && b.deadline.After(now) && (until.IsZero() || !b.deadline.After(until)) {
		return
	}
	b.deadline = until
	if next := now.Add(sweepEvery); rounds && (until.IsZero() || next.Before(until)) {
		b.deadline = next
	}
	b.file.SetReadDeadline(b.deadline)
}

func (b *bell) leave(r *ring) {
	r.cqFlags.Store(cqEventfdDisabled)
	b.look = nil
	b.parked.Store(false)
	b.woken.Store(false) // whoever woke us is answered by our return
}

// rounds looks after the sockets of a port at which nothing happens.
func (p *Poller) rounds() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.sweep(sweepParked)
	p.submit()
}

// Wake implements kernel.Poller. It moves the parked goroutine's read deadline: Go's scheduler
// makes it runnable without a system call.
func (p *Poller) Wake() {
	b := &p.bell
	if b.woken.Swap(true) {
		return
	}
	b.nudge()
}

// nudge makes a parked goroutine look around, or the next one.
func (b *bell) nudge() {
	b.stale.Store(true)
	b.file.SetReadDeadline(past)
}
