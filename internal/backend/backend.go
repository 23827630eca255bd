// Package backend is the seam between the contract and the systems: what a kernel's readiness queue
// must offer, in the smallest alphabet that serves all of them.
//
// A kernel's room (one package below this one) knows nothing of keys, one-shot bookkeeping, posts,
// removals, time-outs or contexts. It takes interest changes and gives readiness.
package backend

import "time"

// Mask is a set of conditions, both as interest and as readiness.
type Mask uint32

// The alphabet. As interest only In, Urgent, Out and PeerClosed are meaningful: Err and Dead are
// always reported.
const (
	In         Mask = 0x01 // a receive or an accept would not block
	Urgent     Mask = 0x02 // urgent data is pending, or passed by
	Out        Mask = 0x04 // a send would not block
	Err        Mask = 0x08 // an error is pending
	Dead       Mask = 0x10 // both directions are shut, or the stream was never started
	PeerClosed Mask = 0x20 // the peer's direction of a stream is shut
)

// Kind is what a handle is.
type Kind uint8

const (
	Datagram Kind = iota // anything that has no connection to hang up
	Stream               // has one, or may get one
	Listener             // a stream socket that listened when it was described
)

// Ready is one report: the token of the latest change to the handle, and what holds.
type Ready struct {
	Token uint64
	Mask  Mask
	_     uint32 // a 64-bit number has its own alignment on some 32-bit systems; this size is for all
}

// Action says what a Change does.
type Action uint8

const (
	// Add begins to watch a handle that is not watched: Present if it is.
	Add Action = iota
	// Set replaces token and interest of a watched handle and looks at it again: whatever holds
	// is reported. Where reports silence (Edges is false), an interest in Dead says that Dead
	// has been told already and is no reason to report. Absent if the handle is not watched, or
	// names another socket by now.
	Set
	// Suppress keeps a watched handle, so that it can be told from another socket of the same
	// number, but reports nothing more until the next Set, except Err and Dead, each at most
	// once. Absent as with Set.
	Suppress
	// Delete stops watching. Nothing is reported with its token afterwards, but for what
	// concurrent Polls have already taken. Absent as with Set.
	Delete
)

// Status is the outcome of a Change.
type Status uint8

const (
	Done    Status = iota
	Absent         // the kernel does not watch this socket
	Present        // the kernel watches this socket already
	Bad            // the handle names no open socket
	Refused        // a limit, or anything else; nothing was changed
)

// Change is one instruction to a Poller, with its outcome.
type Change struct {
	Handle   uintptr
	Token    uint64
	Interest Mask
	Action   Action
	Status   Status
	Listens  bool  // Add: the handle is a listener, of which Dead says that it was shut down
	Same     bool  // a Set whose token and interest are the latest's: nothing need be done where nothing holds
	Err      error // the system's error where Status is not Done
}

// A Poller is one kernel readiness queue. All methods but Park and Close may be called by any
// number of goroutines at once.
type Poller interface {
	// Edges says how a report leaves the handle. True: it goes on being watched, and every
	// later change of a condition from not holding to holding is reported too. False: it is
	// silent until the next Set.
	Edges() bool

	// Describe tells what kind of socket a handle is. The error is the system's for a handle
	// that is closed, or no socket.
	Describe(handle uintptr) (Kind, error)

	// Has reports whether this kernel object watches the socket that the handle names now. No
	// change of the same handle may be under way: it could meet what Has does to find out.
	Has(handle uintptr) (bool, error)

	// Look tells what holds of the socket that the handle names now, after whatever the system is
	// in the middle of doing to it. A report made while a connection is being torn down can be
	// half of the truth.
	Look(handle uintptr) Mask

	// Poll applies the changes in order, each with its own outcome, then fills ready with what
	// can be had without blocking, and returns how many. Where it filled all of ready there may
	// be more.
	Poll(changes []Change, ready []Ready) int

	// Park blocks its one caller until something may be ready, Wake is called, or until has
	// passed (a zero until: for ever). Once it is certain that a later report will end the
	// block, it calls look, and returns at once if that is true. It may return early and without
	// cause; the caller looks again in any case.
	Park(until time.Time, look func() bool) error

	// Wake ends the current Park, or else the next one, at once.
	Wake()

	// Close releases the kernel's objects. No other call may be under way or follow.
	Close() error
}

// A Batcher is a Poller that makes many non-blocking receives and sends by one system call.
type Batcher interface {
	// Least is how many of them are worth it. Fewer cost less by a call each.
	Least() int
	// Exchange makes calls, and none that blocks. Any number of goroutines may do so at once. In which
	// order is open, and so is how many are made: the others are as if they had not been asked for. None is
	// under way when it returns.
	Exchange(calls []Exchange)
}

// An Exchange is a receive or a send of a socket, with its outcome.
type Exchange struct {
	Handle uintptr
	Buf    []byte // not empty, and no stack's
	N      int    // how many bytes were moved
	Err    error  // the system's error number, where it failed
	Send   bool
	Made   bool // the call was made
}
