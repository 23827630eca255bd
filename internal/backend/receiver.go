package backend

import (
	"sync/atomic"
	"unsafe"
)

// A Receiver is a Poller whose kernel receives into a buffer by itself, and reports when it has. Its methods may be called
// by any number of goroutines at once, but not for the same handle.
type Receiver interface {
	// Receive starts a receive from a stream that is watched. It returns false, with nothing started, if the kernel
	// cannot receive from this handle. Otherwise the handle stops being watched until the next Set, and the kernel owns
	// r and its buffer until r.Ended is set. The handle is then reported with In, and again after each Set, until the
	// caller has cleared r.Ended.
	Receive(handle uintptr, r *Receive) bool
	// Revoke ends a receive, and waits until r.Ended is set, which usually happens at once. It returns false if the kernel
	// keeps the buffer. The handle may be closed.
	Revoke(r *Receive) bool
	// Detach makes a handle that is open, watched and has no receive free for other completion ports.
	Detach(handle uintptr)
}

// A Receive is a receive that the kernel carries out.
type Receive struct {
	Exchange                // Buf, and after the end N and Err
	Ended    atomic.Bool    // set by the backend, after the other fields
	Void     bool           // the kernel gave the buffer back without a result: nothing was received, and no error
	Kernel   unsafe.Pointer // used by the backend alone, for Revoke
}
