// Package backend is the seam between the contract and the systems. It defines what a kernel's
// readiness queue must offer, in the smallest set of conditions and actions that serves all of them.
//
// A backend (each is a package below this one) knows nothing of keys, one-shot bookkeeping, posts,
// removals, timeouts or contexts. It takes changes of interest and reports readiness.
package backend

import "time"

// Mask is a set of conditions, both as interest and as readiness.
type Mask uint32

// The conditions. Only In, Urgent, Out and PeerClosed are meaningful as interest: Err and Dead are
// always reported.
const (
	In         Mask = 0x01 // a receive or an accept would not block
	Urgent     Mask = 0x02 // urgent data is pending, or passed by
	Out        Mask = 0x04 // a send would not block
	Err        Mask = 0x08 // an error is pending
	Dead       Mask = 0x10 // both directions are shut, or the stream was never started
	PeerClosed Mask = 0x20 // the peer's direction of a stream is shut
)

// Kind is the kind of a handle.
type Kind uint8

const (
	Datagram Kind = iota // a handle without a connection to hang up
	Stream               // a handle that has a connection or may get one
	Listener             // a stream socket that listened when it was described
)

// Ready is one report: the token of the latest change to the handle, and the conditions that hold.
type Ready struct {
	Token uint64
	Mask  Mask
	_     uint32 // makes the size 16 bytes on 32-bit systems too, where uint64 may be aligned to 4 bytes
}

// Action says what a Change does.
type Action uint8

const (
	// Add begins to watch a handle. Its status is Present if the handle is watched already.
	Add Action = iota
	// Set replaces token and interest of a watched handle and polls it again: all conditions that
	// hold are reported. Where a report suppresses its handle (Edges is false), an interest in
	// Dead means that Dead was reported already and is no reason for another report. The status
	// is Absent if the handle is not watched, or names another socket by now.
	Set
	// Suppress keeps a handle watched, so that another socket with the same number can be
	// recognized, but reports nothing more until the next Set, except Err and Dead, each at most
	// once. The status is Absent as with Set.
	Suppress
	// Delete stops watching a handle. Nothing is reported with its token afterwards, except
	// reports that concurrent Polls have already taken. The status is Absent as with Set.
	Delete
)

// Status is the outcome of a Change.
type Status uint8

const (
	Done    Status = iota
	Absent         // the kernel does not watch this socket
	Present        // the kernel watches this socket already
	Bad            // the handle names no open socket
	Refused        // the change failed because of a limit or for another reason; nothing was changed
)

// Change is one instruction to a Poller, with its outcome.
type Change struct {
	Handle   uintptr
	Token    uint64
	Interest Mask
	Action   Action
	Status   Status
	Listens  bool  // Add: the handle is a listener; Dead means that it was shut down
	SkipIdle bool  // a Set that repeats the latest token and interest; it may be left out if no condition holds
	Err      error // the system's error where Status is not Done
}

// A Poller is one kernel readiness queue. All methods but Park and Close may be called by any
// number of goroutines at once.
type Poller interface {
	// Edges reports whether a handle remains watched after a report. If true, every later change
	// of a condition from not holding to holding is reported too. If false, the handle is
	// suppressed until the next Set.
	Edges() bool

	// Describe returns the kind of a socket. For a handle that is closed or is no socket, it
	// returns the system's error.
	Describe(handle uintptr) (Kind, error)

	// Has reports whether this kernel object watches the socket that the handle names now. The
	// caller must not change the same handle concurrently, because Has may add the handle and
	// delete it again to find out.
	Has(handle uintptr) (bool, error)

	// PollOne polls the socket that the handle names now and returns the conditions that hold. It
	// waits for a state change that the system is in the middle of, because a report made while
	// a connection is being torn down can be incomplete.
	PollOne(handle uintptr) Mask

	// Poll applies the changes in order and sets the outcome of each. Then it fills ready with
	// the reports that are available without blocking, and returns their number. If it filled
	// all of ready, there may be more.
	Poll(changes []Change, ready []Ready) int

	// Park blocks until something may be ready, Wake is called, or the time until has passed; if
	// until is zero, there is no time limit. At most one goroutine may be in Park. Once it is
	// certain that a later report will end the block, Park calls poll, and returns at once if
	// poll returns true. Park may return early and without cause, so the caller must poll again
	// in any case.
	Park(until time.Time, poll func() bool) error

	// Wake makes the current Park return at once, or the next one if none is running.
	Wake()

	// Close releases the kernel's objects. No other call may run concurrently or follow.
	Close() error
}
