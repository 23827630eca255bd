package iouring

import (
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ring is the pair of queues that is shared with the kernel. One goroutine uses it at a time.
type ring struct {
	fd int

	queues, entries []byte // the mappings

	sqHead, sqTail, sqFlags *atomic.Uint32
	sqes                    []sqe
	tail                    uint32 // entries up to here are filled in

	cqHead, cqTail, cqFlags *atomic.Uint32
	cqes                    []cqe

	// What await hands over by address, and must not lie on a stack.
	arg   enterArg
	limit unix.Timespec
}

// open makes a ring of so many entries for submission and for completion, both powers of two.
func (r *ring) open(submissions, completions uint32) error {
	p := params{cqEntries: completions, flags: setupCQSize | setupSubmitAll | setupCoopTaskrun | setupTaskrunFlag}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(submissions), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return os.NewSyscallError("io_uring_setup", e)
	}
	r.fd = int(fd)
	const features = featSingleMmap | featNoDrop | featExtArg | featCQESkip
	if p.features&features != features {
		unix.Close(r.fd)
		return os.NewSyscallError("io_uring_setup", unix.ENOSYS)
	}
	size := max(int(p.sq.array+p.sqEntries*4), int(p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{}))))
	var err error
	if r.queues, err = r.mmap(0, size); err == nil {
		r.entries, err = r.mmap(offSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})))
	}
	if err != nil {
		r.close()
		return os.NewSyscallError("mmap", err)
	}
	word := func(offset uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.queues[offset])) }
	r.sqHead, r.sqTail, r.sqFlags = word(p.sq.head), word(p.sq.tail), word(p.sq.flags)
	r.cqHead, r.cqTail, r.cqFlags = word(p.cq.head), word(p.cq.tail), word(p.cq.flags)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.queues[p.cq.cqes])), p.cqEntries)
	array := unsafe.Slice((*uint32)(unsafe.Pointer(&r.queues[p.sq.array])), p.sqEntries)
	for i := range array {
		array[i] = uint32(i)
	}
	return nil
}

func (r *ring) mmap(offset int64, size int) ([]byte, error) {
	return unix.Mmap(r.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
}

func (r *ring) close() error {
	var err error
	if e := unix.Close(r.fd); e != nil {
		err = os.NewSyscallError("close", e)
	}
	for _, m := range [][]byte{r.queues, r.entries} {
		if m != nil {
			if e := unix.Munmap(m); e != nil && err == nil {
				err = os.NewSyscallError("munmap", e)
			}
		}
	}
	return err
}

// filled is how many entries wait to be submitted.
func (r *ring) filled() uint32 { return r.tail - r.sqHead.Load() }

// room tells how many more entries can be filled in.
func (r *ring) room() int { return len(r.sqes) - int(r.filled()) }

// push fills in one entry; there must be room.
func (r *ring) push(e sqe) {
	r.sqes[r.tail&uint32(len(r.sqes)-1)] = e
	r.tail++
	r.sqTail.Store(r.tail)
}

// enter submits what has been filled in. On the way back the kernel does what the calling thread has to do
// for its polls, so the completions of what was submitted are in the queue. Entries that the kernel has no
// memory for are left to a later call.
func (r *ring) enter() {
	for n := r.filled(); ; {
		_, _, e := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(n), 0, enterGetEvents, 0, 0)
		left := r.filled()
		if left == 0 && e != unix.EINTR || left == n && e != unix.EINTR {
			return
		}
		n = left
	}
}

// await submits, and blocks until there is a completion or a while has passed.
func (r *ring) await(d time.Duration) {
	r.limit = unix.NsecToTimespec(int64(d))
	r.arg.timeout = uint64(uintptr(unsafe.Pointer(&r.limit)))
	unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.filled()), 1, enterGetEvents|enterExtArg,
		uintptr(unsafe.Pointer(&r.arg)), unsafe.Sizeof(r.arg))
}
