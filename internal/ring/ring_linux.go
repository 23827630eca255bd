package ring

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A ring is the pair of queues that is shared with the kernel. One goroutine uses it at a time, on any thread.
// The kernel reads and writes the queues only during a submission, or while an operation is in progress.
type ring struct {
	fd int

	queues, entries []byte // the mappings

	sqHead, sqTail *atomic.Uint32
	sqes           []sqe
	tail           uint32 // entries up to here are filled in

	cqHead, cqTail *atomic.Uint32
	cqes           []cqe

	awaits int // the number of calls of await, for tests
}

// open opens a ring for the given number of submissions, a power of two, and twice as many completions.
func (r *ring) open(submissions uint32) error {
	p := params{flags: setupSubmitAll}
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(submissions), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return os.NewSyscallError("io_uring_setup", e)
	}
	r.fd = int(fd)
	const features = featSingleMmap | featNoDrop
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
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = word(p.sq.head), word(p.sq.tail), word(p.cq.head), word(p.cq.tail)
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

// next returns the next submission for the caller to fill in. The queue must not be full.
func (r *ring) next() *sqe {
	e := &r.sqes[r.tail&uint32(len(r.sqes)-1)]
	r.tail++
	return e
}

// submit submits the entries that were filled in, and returns the number that the kernel took. It took the first ones;
// the others are discarded. Go's scheduler knows of the system call, because many sends take long.
func (r *ring) submit() int {
	head := r.sqHead.Load()
	r.sqTail.Store(r.tail)
	unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.tail-head), 0, 0, 0, 0)
	return r.submitted(head)
}

func (r *ring) submitted(head uint32) int {
	r.tail = r.sqHead.Load()
	r.sqTail.Store(r.tail)
	return int(r.tail - head)
}

// await blocks until at least n completions are in the queue. It may return without cause.
func (r *ring) await(n int) {
	r.awaits++
	unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, uintptr(n), enterGetEvents, 0, 0)
}

// completed returns the position of the first completion in the queue and the number of completions.
func (r *ring) completed() (head uint32, n int) {
	head = r.cqHead.Load()
	return head, int(r.cqTail.Load() - head)
}

// completion returns the completion at a position. release returns the first n places to the kernel.
func (r *ring) completion(at uint32) *cqe { return &r.cqes[at&uint32(len(r.cqes)-1)] }

func (r *ring) release(head uint32, n int) { r.cqHead.Store(head + uint32(n)) }
