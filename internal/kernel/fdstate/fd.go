// Package fdstate holds the state that a socket of package sock shares with the port that it is registered with:
// whether the socket is open, whether it has been drained since the port's latest notification, and which port to
// inform when it is closed.
package fdstate

import (
	"math"
	"net"
	"sync/atomic"
)

// An FD is the reference-counted descriptor of one socket. The zero value is closed.
//
// Calls that use the handle hold a reference. The handle is closed when Close has been called and no reference is
// left. So a call cannot operate on another socket that was given the same number.
type FD struct {
	num  atomic.Uintptr // handle + 1; 0: closed
	refs atomic.Int32   // number of references, plus one of the constants below

	// flags holds the directions that are suppressed (see Suppressed), and above them the bits of Kind.
	flags atomic.Uint32

	// generation is advanced by each notification of the port (see Advance). Its lowest bits are flags of that
	// notification. blocked holds, by direction, 1 + the generation in which a call would have blocked.
	generation atomic.Uint64
	blocked    [2]atomic.Uint64

	owner atomic.Pointer[Owner]
}

const (
	closeCalled   = math.MinInt32     // Close was called
	handleClosing = math.MinInt32 / 2 // no reference is left, and the handle is being closed
	handleClosed  = math.MinInt32 / 4 // the handle has been closed
)

// An Owner holds the functions by which a socket informs the port that it is registered with. They may be called at any
// time, also after the port was closed or garbage collected.
type Owner struct {
	// Closing is called before the system closes the socket.
	Closing func(fd *FD, handle uintptr)
	// Blocked is called when a call would have blocked in a direction for which Suppressed was called.
	Blocked func(handle uintptr, d Dir)
	// ShutSend is called after the program has shut the sending direction. It may be nil.
	ShutSend func(fd *FD, handle uintptr)
}

// Dir is a set of directions.
type Dir uint32

const (
	Recv Dir = 1 << iota
	Send

	both      = uint32(Recv | Send)
	kindShift = 2
)

// Accepted is a bit of Kind that is defined here for all users: the socket was returned by accept.
const Accepted = 1 << 8

// Kind returns the bits that were set by SetKind. They belong to the socket, and are stored here because there is room.
func (fd *FD) Kind() uint32 { return fd.flags.Load() >> kindShift }

// SetKind sets the bits of Kind. It must be called before the FD is shared.
func (fd *FD) SetKind(kind uint32) { fd.flags.Store(kind << kindShift) }

// ChangeKind sets or clears some bits of Kind, at any time.
func (fd *FD) ChangeKind(bits uint32, on bool) {
	if on {
		fd.flags.Or(bits << kindShift)
	} else {
		fd.flags.And(^(bits << kindShift))
	}
}

// Open opens a closed FD with a handle. It reports whether it succeeded. It fails if the FD is open, or if a
// reference from before Close is left.
func (fd *FD) Open(handle uintptr) bool {
	if !fd.num.CompareAndSwap(0, handle+1) {
		return false
	}
	switch refs := fd.refs.Load(); {
	case refs >= 0: // fd has never been open
	case refs >= handleClosed:
		// Reset the state. fd stays closed to other calls until the last of these statements.
		fd.flags.And(^both)
		fd.generation.Store(0)
		fd.blocked[0].Store(0)
		fd.blocked[1].Store(0)
		fd.refs.Add(-handleClosed)
	default:
		fd.num.Store(0) // the previous handle is in use or being closed
		return false
	}
	return true
}

// Closed reports whether Open would succeed: fd is closed, and so is its previous handle.
func (fd *FD) Closed() bool { return fd.num.Load() == 0 && fd.refs.Load() >= handleClosed }

// Use adds a reference and returns the handle. ok reports whether fd is open. If it is, Done must follow.
func (fd *FD) Use() (handle uintptr, ok bool) {
	for {
		refs := fd.refs.Load()
		if refs < 0 {
			return 0, false
		}
		if fd.refs.CompareAndSwap(refs, refs+1) {
			break
		}
	}
	if num := fd.num.Load(); num != 0 {
		return num - 1, true
	}
	fd.Done() // fd has never been open
	return 0, false
}

// Done releases a reference. If Close was called and this was the last reference, Done closes the handle. The
// caller must hold no lock that Owner.Closing may take.
func (fd *FD) Done() {
	if fd.refs.Add(-1) == closeCalled {
		fd.finish()
	}
}

// Close closes the socket. If there are references, the handle is closed when the last one is released.
func (fd *FD) Close() error {
	if fd.num.Load() == 0 {
		return net.ErrClosed
	}
	for {
		refs := fd.refs.Load()
		switch {
		case refs < 0:
			return net.ErrClosed
		case refs == 0:
			if fd.refs.CompareAndSwap(0, closeCalled) {
				return fd.finish()
			}
		case fd.refs.CompareAndSwap(refs, refs+1+closeCalled):
			// The handle is closed when the last reference is released, but the registration must end now.
			// The call of Closing holds a reference. Without it, fd could be closed and opened again
			// concurrently, and Closing would end the registration of the new socket.
			if o := fd.owner.Load(); o != nil {
				o.Closing(fd, fd.Handle())
			}
			if fd.refs.Add(-1) == closeCalled {
				return fd.finish()
			}
			return nil
		}
	}
}

// finish closes the handle when no reference is left. Open fails until finish has returned.
func (fd *FD) finish() error {
	if !fd.refs.CompareAndSwap(closeCalled, handleClosing) {
		return nil
	}
	handle := fd.num.Swap(0) - 1
	if o := fd.owner.Swap(nil); o != nil {
		o.Closing(fd, handle)
	}
	err := closeHandle(handle)
	fd.refs.Add(handleClosed - handleClosing)
	return err
}

// Handle returns the handle, or ^uintptr(0) if fd is closed.
func (fd *FD) Handle() uintptr { return fd.num.Load() - 1 }

// ShutSend informs the owner that the program has shut the sending direction. The caller holds a reference.
func (fd *FD) ShutSend() {
	if o := fd.owner.Load(); o != nil && o.ShutSend != nil {
		o.ShutSend(fd, fd.Handle())
	}
}

// SetOwner sets the port that is informed. The caller holds a reference.
func (fd *FD) SetOwner(o *Owner) {
	if fd.owner.Load() != o {
		fd.owner.Store(o)
	}
}
