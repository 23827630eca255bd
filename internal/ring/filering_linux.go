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

	// maxTransfer limits the bytes of one submission. The kernel's own limit is 4 KiB less than 2 GiB.
	maxTransfer = 1 << 30
)

// A fileRing reads and writes files.
//
// The kernel completes a transfer while it takes the submission, if the data is in memory, and otherwise later. Only
// for later completions, the epoll descriptor watches the ring, for one report at a time (armed). A transfer that is
// completed at once causes no such report.
//
// No completion is lost. A goroutine that starts a transfer or takes completions arms the ring if a further completion
// is expected and the ring is not armed. Arming also polls the ring, so a completion that has arrived before is
// reported. A goroutine that takes that report clears armed, and then calls Due.
//
// Each transfer, and each attempt to cancel one, has one completion. The completion queue has room for all of them.
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

// A transfer keeps its buffer reachable while the kernel uses it. It has no pointer to its operation or key, because
// the data that a port's cleanup needs must not keep the port reachable. The buffer itself may keep the port
// reachable, until the kernel is done with it (see tidy).
type transfer struct {
	buf      *byte
	name     uint64 // its user_data: a number that is not used again, and the token; 0 if there is no transfer
	canceled bool
}

// The low tokenBits of a name are the token. The bit above them (attempt) marks an attempt to cancel.
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

// arm makes the epoll descriptor report the next completion, or one that is in the queue already.
func (f *fileRing) arm() {
	if f.armed.CompareAndSwap(false, true) {
		f.watch(unix.EPOLL_CTL_MOD, unix.EPOLLIN)
	}
}

// start submits a transfer. It returns false if another goroutine is submitting, or the kernel does not take it.
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

// cancel submits an attempt to cancel a transfer.
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

// submit submits one entry, and arms the ring if a completion is still expected.
func (f *fileRing) submit() bool {
	r := &f.ring
	f.outstanding.Add(1)
	head := r.sqHead.Load()
	r.sqTail.Store(r.tail)
	// The call may take long, so it is not a raw system call.
	unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 1, 0, 0, 0, 0)
	r.tail = r.sqHead.Load()
	r.sqTail.Store(r.tail)
	if r.tail == head {
		f.outstanding.Add(-1)
		return false
	}
	// The order matters: drain, which may run concurrently, reduces the queue before it reduces outstanding.
	all := f.outstanding.Load()
	if _, n := r.completed(); int(all) > n {
		f.arm()
		f.tidyLater()
	}
	return true
}

// due implements backend.Files.Due.
func (f *fileRing) due() bool {
	if f.outstanding.Load() == 0 {
		return false
	}
	_, n := f.ring.completed()
	return n > 0 || !f.armed.Load()
}

// take implements backend.Files.Transferred.
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

// drain takes completions until ended is full.
func (f *fileRing) drain(ended []backend.Transferred) (n int) {
	f.outstanding.Load() // transfers were filled in before they were counted, so they are visible now
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

// tidyLater schedules tidy for the next cycle of the garbage collector. A program may drop a port with transfers in
// progress whose buffers are in objects with pointers to the port. No goroutine takes the completions then, so tidy
// releases the buffers that the kernel is done with.
func (f *fileRing) tidyLater() {
	if !f.tidying.Swap(true) {
		runtime.AddCleanup(new(cycle), (*fileRing).tidy, f)
	}
}

// A cycle is an object whose cleanup runs in the next cycle of the garbage collector.
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

// close cancels all transfers, waits until the kernel uses no buffer, and closes the ring.
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
