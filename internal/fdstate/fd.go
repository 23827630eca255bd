// Package fdstate is what a socket of package sock and the port that watches it know of each other: whether
// the socket is open, whether it has been drained since the port last notified, and whom to tell of its
// closing.
package fdstate

import (
	"math"
	"net"
	"sync/atomic"
)

// An FD belongs to one socket for the socket's life. The zero value is closed.
//
// Calls that use the handle are counted, and the system closes it when Close has been called and no call
// uses it any more. So no call can meet another socket that was given the same number.
type FD struct {
	num  atomic.Uintptr // handle + 1; 0: closed
	refs atomic.Int32   // calls under way, plus one of the following

	// silent has the directions whose would-block the port waits for (see Blocked), and above them the
	// socket's own bits (see Kind).
	silent atomic.Uint32

	// turn is which of the port's notifications was the last, and what it said about receiving short
	// (see Notify). blocked has, by direction, the turn in which a call would have blocked, plus 1.
	turn    atomic.Uint64
	blocked [2]atomic.Uint64

	owner atomic.Pointer[Owner]
}

const (
	shut   = math.MinInt32     // Close was called
	ending = math.MinInt32 / 2 // no use is left, and the handle is being closed
	over   = math.MinInt32 / 4 // it has been closed
)

// An Owner is a port, as a socket sees it. Its functions may be called at any time, also after the
// port was closed or dropped.
type Owner struct {
	// Closing says that the system is about to close the socket.
	Closing func(t *FD, handle uintptr)
	// Blocked says that a call would have blocked in directions that the port had Silenced.
	Blocked func(handle uintptr, d Dir)
}

// Dir is a set of directions.
type Dir uint32

const (
	Recv Dir = 1 << iota
	Send

	both      = uint32(Recv | Send)
	kindShift = 2
)

// Accepted is a kind that all know: a stream that was accepted, and stays what it is.
const Accepted = 1 << 8

// Kind is what SetKind was given: bits of the socket's, which are here because there is room.
func (t *FD) Kind() uint32 { return t.silent.Load() >> kindShift }

// SetKind is for who alone knows of the fd.
func (t *FD) SetKind(kind uint32) { t.silent.Store(kind << kindShift) }

// Open gives a closed fd a handle. It fails where the fd is open, or calls from before its Close are
// still under way.
func (t *FD) Open(handle uintptr) bool {
	if !t.num.CompareAndSwap(0, handle+1) {
		return false
	}
	switch refs := t.refs.Load(); {
	case refs >= 0: // it has never been open
	case refs >= over:
		// Until the last of these, it is closed to everybody else.
		t.silent.And(^both)
		t.turn.Store(0)
		t.blocked[0].Store(0)
		t.blocked[1].Store(0)
		t.refs.Add(-over)
	default:
		t.num.Store(0) // its last handle is being closed
		return false
	}
	return true
}

// Closed reports whether Open would succeed: the fd is closed, and so is the handle that it had.
func (t *FD) Closed() bool { return t.num.Load() == 0 && t.refs.Load() >= over }

// Use begins a use of the handle; ok is false where it is closed. Done must follow where it is not.
func (t *FD) Use() (handle uintptr, ok bool) {
	for {
		refs := t.refs.Load()
		if refs < 0 {
			return 0, false
		}
		if t.refs.CompareAndSwap(refs, refs+1) {
			break
		}
	}
	if num := t.num.Load(); num != 0 {
		return num - 1, true
	}
	t.Done() // it has never been open
	return 0, false
}

// Done ends a use. If Close was called meanwhile, the last to be done closes; it must hold no lock
// that the owner's Closing may take.
func (t *FD) Done() {
	if t.refs.Add(-1) == shut {
		t.finish()
	}
}

// Close closes the socket, now or when the last use of it is done.
func (t *FD) Close() error {
	if t.num.Load() == 0 {
		return net.ErrClosed
	}
	for {
		refs := t.refs.Load()
		switch {
		case refs < 0:
			return net.ErrClosed
		case refs == 0:
			if t.refs.CompareAndSwap(0, shut) {
				return t.finish()
			}
		case t.refs.CompareAndSwap(refs, refs+1+shut):
			// It is closed when the last use is done, but ends as far as the port is concerned now. That
			// telling is a use as well: without it the fd could be closed and opened again meanwhile, and
			// what the port ended would be its next life.
			if o := t.owner.Load(); o != nil {
				o.Closing(t, t.Handle())
			}
			if t.refs.Add(-1) == shut {
				return t.finish()
			}
			return nil
		}
	}
}

// finish closes the handle once no use is left. Nobody can open the fd before it is done.
func (t *FD) finish() error {
	if !t.refs.CompareAndSwap(shut, ending) {
		return nil
	}
	handle := t.num.Swap(0) - 1
	if o := t.owner.Swap(nil); o != nil {
		o.Closing(t, handle)
	}
	err := closeHandle(handle)
	t.refs.Add(over - ending)
	return err
}

// Handle is the handle, or all ones where the socket is closed.
func (t *FD) Handle() uintptr { return t.num.Load() - 1 }

// Own makes a port the one to be told. The fd is in use.
func (t *FD) Own(o *Owner) {
	if t.owner.Load() != o {
		t.owner.Store(o)
	}
}
