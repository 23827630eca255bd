package ring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

const (
	opAsyncCancel = 14
	opRead        = 22
	opWrite       = 23

	// maxTransfer is how many bytes are asked for at once; the kernel moves up to 4 KiB less than 2 GiB.
	maxTransfer = 1 << 30
)

// A fileRing reads and writes files.
//
// What is at hand the kernel moves as it takes the submission; the rest comes when it comes. Only for that the
// epoll descriptor watches the ring, for one report at a time (armed), so that what is done at once costs nothing
// there. Why none is lost: whoever starts a transfer, or takes ended ones, arms the ring if another is to come
// and it is not armed. To arm it is to look at it as well, so one that ended meanwhile is reported. Whoever takes
// that report clears armed, and then asks Due.
//
// Each transfer, and each attempt to cancel one, has one completion, for which there is always room.
type fileRing struct {
	ring ring
	epfd int

	sq sync.Mutex // to submit
	cq sync.Mutex // to take completions

	outstanding atomic.Int32 // completions that have not been taken
	armed       atomic.Bool
	tidying     atomic.Bool

	latest    uint64 // name of a transfer
	transfers [backend.MaxTransfers]transfer
	closed    bool // under cq
}

// A transfer keeps a buffer as long as the kernel has it. Nothing here leads to the operation it is for, nor
// to its key: what a port's cleanup needs must not keep the port. The buffer itself may, until the kernel is done
// with it (tidy).
type transfer struct {
	buf      *byte
	name     uint64 // what the kernel knows it by: a number that is not used again, and the token; 0 when there is none
	canceled bool
}

// tokenBits are those of the token, in a name; the bit above them tells an attempt to cancel.
const (
	tokenBits = 8
	attempt   = 1 << tokenBits
	nameStep  = attempt << 1
)

func openFileRing(epfd int) (*fileRing, error) {
	f := &fileRing{epfd: epfd}
	if err := f.ring.open(backend.MaxTransfers); err != nil {
		return nil, err
	}
	if e := f.watch(unix.EPOLL_CTL_ADD, 0); e != nil {
		f.ring.close()
		return nil, e
	}
	return f, nil
}

func (f *fileRing) watch(op int, events uint32) error {
	token := fileToken
	ev := unix.EpollEvent{Events: events | unix.EPOLLONESHOT, Fd: int32(uint32(token)), Pad: int32(uint32(token >> 32))}
	return unix.EpollCtl(f.epfd, op, f.ring.fd, &ev)
}

// arm has the epoll descriptor report the next completion, or one that is there.
func (f *fileRing) arm() {
	if f.armed.CompareAndSwap(false, true) {
		f.watch(unix.EPOLL_CTL_MOD, unix.EPOLLIN)
	}
}

// start submits a transfer, unless somebody else is submitting one.
func (f *fileRing) start(fd int32, token uint32, write bool, b []byte, off int64) bool {
	if !f.sq.TryLock() {
		return false
	}
	defer f.sq.Unlock()
	f.latest += nameStep
	t := &f.transfers[token]
	t.buf, t.name, t.canceled = unsafe.SliceData(b), f.latest|uint64(token), false
	e := f.ring.next()
	*e = sqe{op: opRead, fd: fd, off: uint64(off), addr: uint64(uintptr(unsafe.Pointer(t.buf))),
		len: uint32(min(len(b), maxTransfer)), data: t.name}
	if write {
		e.op = opWrite
	}
	if !f.submit() {
		*t = transfer{}
		return false
	}
	return true
}

// cancel submits an attempt to cancel.
func (f *fileRing) cancel(token uint32) {
	f.sq.Lock()
	defer f.sq.Unlock()
	f.cq.Lock()
	defer f.cq.Unlock()
	f.attempt(&f.transfers[token])
}

func (f *fileRing) attempt(t *transfer) {
	if t.name == 0 || t.canceled {
		return
	}
	*f.ring.next() = sqe{op: opAsyncCancel, fd: -1, addr: t.name, data: t.name | attempt}
	t.canceled = f.submit()
}

// submit submits one entry, and arms the ring if something is to come.
func (f *fileRing) submit() bool {
	r := &f.ring
	f.outstanding.Add(1)
	head := r.sqHead.Load()
	r.sqTail.Store(r.tail)
	// The kernel may take its time, so Go's scheduler is told.
	unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 0, 0, 0, 0)
	r.tail = r.sqHead.Load()
	r.sqTail.Store(r.tail)
	if r.tail == head {
		f.outstanding.Add(-1)
		return false
	}
	// In this order: what is taken meanwhile makes the second smaller first.
	all := f.outstanding.Load()
	if _, n := r.completed(); int(all) > n {
		f.arm()
		f.tidyLater()
	}
	return true
}

// due is backend.Files.Due.
func (f *fileRing) due() bool {
	if f.outstanding.Load() == 0 {
		return false
	}
	_, n := f.ring.completed()
	return n > 0 || !f.armed.Load()
}

// take is backend.Files.Transferred.
func (f *fileRing) take(ended []backend.Transferred) (n int) {
	f.cq.Lock()
	defer f.cq.Unlock()
	n = f.drain(ended)
	_, left := f.ring.completed()
	if int(f.outstanding.Load()) > left {
		f.arm()
	}
	return n
}

// drain takes completions as long as there is room.
func (f *fileRing) drain(ended []backend.Transferred) (n int) {
	f.outstanding.Load() // what was submitted was written before it was counted
	head, there := f.ring.completed()
	taken := 0
	for ; taken < there && n < len(ended); taken++ {
		c := f.ring.completion(head + uint32(taken))
		if c.data&attempt != 0 {
			continue
		}
		token := uint32(c.data & (attempt - 1))
		f.transfers[token] = transfer{}
		e := &ended[n]
		switch *e = (backend.Transferred{Token: token}); {
		case c.res >= 0:
			e.N = int(c.res)
		case c.res == -int32(unix.ECANCELED), c.res == -int32(unix.EINTR):
			e.Status = backend.Abandoned // the thread that submitted it may have ended
		default:
			e.Status = backend.Failed
		}
		n++
	}
	f.ring.release(head, taken)
	f.outstanding.Add(-int32(taken))
	return n
}

// A port may be dropped with transfers under way, and their buffers be in the same objects as pointers to the port.
// Nobody takes the completions then. So with each cycle of the garbage collector the ring lets go of the buffers
// that the kernel is done with.
func (f *fileRing) tidyLater() {
	if !f.tidying.Swap(true) {
		runtime.AddCleanup(new(cycle), (*fileRing).tidy, f)
	}
}

// A cycle is garbage, to be noticed.
type cycle struct{ _ *cycle }

func (f *fileRing) tidy() {
	f.cq.Lock()
	defer f.cq.Unlock()
	f.tidying.Store(false)
	if f.closed {
		return
	}
	all := f.outstanding.Load()
	head, there := f.ring.completed()
	for i := range uint32(there) {
		if c := f.ring.completion(head + i); c.data&attempt == 0 {
			f.transfers[c.data&(attempt-1)].buf = nil
		}
	}
	if int(all) > there {
		f.tidyLater()
	}
}

// close waits until the kernel has no buffer any more.
func (f *fileRing) close() error {
	f.sq.Lock()
	defer f.sq.Unlock()
	f.cq.Lock()
	defer f.cq.Unlock()
	var ended [16]backend.Transferred
	for f.drain(ended[:]); f.outstanding.Load() > 0; f.drain(ended[:]) {
		for i := range f.transfers {
			f.attempt(&f.transfers[i])
		}
		if _, n := f.ring.completed(); n > 0 {
			continue
		}
		_, _, e := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(f.ring.fd), 0, 1, enterGetEvents, 0, 0)
		if e != 0 && e != unix.EINTR {
			time.Sleep(time.Millisecond)
		}
	}
	f.closed = true
	return f.ring.close()
}
