package port

import (
	"syscall"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// maxReports is the number of reports that one poll takes at most.
const maxReports = 128

// A Call is the state of one call inside the port. Calls are pooled, so that the steady state
// allocates nothing (C7).
type Call struct {
	port   *Port
	stripe *stripe
	batch  batch
	ready  [maxReports]backend.Ready
	single [1]backend.Change

	// queueFirst alternates between the queue and the backend when there is only one entry to fill
	// (Q2).
	queueFirst bool

	waiter waiter
	// pollOnce dequeues into out and reports whether there was anything. It is the argument of
	// backend.Poller.Park, made by the first lead.
	pollOnce func() bool
	out      Entries
	found    int

	// The entry whose connection's Control is running (see register.go).
	reg     Entry
	raw     syscall.RawConn
	held    bool          // the port holds the connection already
	inside  bool          // Control has run its function
	control func(uintptr) // that function, made by the first registerConn
	redo    []redo
	// used are the sockets of package sock that the entries name, until Complete.
	used []*fdstate.FD
	// saved counts fast enables, until Complete.
	saved uint64
	// spare is for the next connection that is accepted.
	spare *sock.Socket
	// deregisters is set for Deregister: instead of queueing an EventRemove, the removal stores its
	// record in deregistered.
	deregisters  bool
	deregistered *Record
}

// Begin starts a call. It returns nil if the port is closed.
func (p *Port) Begin() *Call {
	w, _ := p.pool.Get().(*Call)
	if w == nil {
		w = &Call{port: p, stripe: &p.Core.Stripes[p.calls.Add(1)%Stripes]}
		w.waiter.wake = make(chan struct{}, 1)
	}
	if !w.stripe.enter(p.Core) {
		p.pool.Put(w)
		return nil
	}
	return w
}

// End ends a call.
func (p *Port) End(w *Call) {
	w.stripe.leave(p.Core)
	p.pool.Put(w)
}

// A batch holds changes that have been made to slots but not yet to the backend, and the lock of
// every slot in it until flush (see batch.go).
type batch struct {
	n       int
	changes [batchSize]backend.Change
	items   [batchSize]item
}

const batchSize = 32

// An item is what settle needs besides the outcome of a change.
type item struct {
	Entry
	slot  *Slot
	was   uint64 // the word before the change
	index uint32
}

// A redo is an entry whose registration turned out to have ended. It is processed again once the
// slots of the batch are unlocked, because it may have to wait for another port.
type redo struct {
	Entry
	at Socket
}
