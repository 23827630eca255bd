// Package ring lets io_uring carry out overlapped operations for a port on the epoll backend: many receives and sends
// with one system call (backend.Batcher), and reads and writes of files (backend.Files). Readiness is left to epoll.
//
// The reasons and the measurements are in docs/decisions/io_uring.md.
//
// # Receives and sends
//
// Each submission has MSG_DONTWAIT: the kernel makes the call while it takes the submission, and a call that would
// block completes with EAGAIN at once. The kernel arms no poll and keeps no buffer after the system call, so there is
// nothing to cancel, and a socket can be closed at any time.
//
// A goroutine takes a ring from a free list for one call of Exchange and puts it back afterwards, so goroutines do not
// wait for each other's ring. Rings are made on demand, up to maxRings. Without a ring Exchange makes no call, and the
// caller makes the system calls one by one.
//
// # Files
//
// One ring per port reads files, and writes those that were opened with O_DIRECT. Data in the page cache is
// read with preadv2 and RWF_NOWAIT, up to 64 KiB, without the ring. The ring does not serve other operations: the
// callers' goroutines write to the page cache, and use file systems without RWF_NOWAIT.
package ring
