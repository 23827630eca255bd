package port

import (
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// maxReports is the number of reports that one poll takes at most.
const maxReports = 128

// A Call is the state of one call inside the port. Calls are pooled, so that the steady state allocates nothing (C7).
type Call struct {
	port   *Port
	stripe *stripe
	batch  batch
	ready  [maxReports]backend.Ready
	single [1]backend.Change

	// queueFirst alternates between the queue and the backend when there is only one entry to fill (Q2).
	queueFirst bool

	// Waiting (see waiters).
	wake   chan struct{} // capacity 1: a token from the call that has removed this one from the list
	woken  bool          // it has received that token
	timer  *time.Timer
	listed bool
	prev   *Call
	after  *Call
	// alert wakes a call that waits outside (see outside.go). It is nil for others, and changes only while the call is not on
	// the list and is owed no token.
	alert func()
	// pollOnce dequeues into out and reports whether there was anything. It is the argument of backend.Poller.Park.
	pollOnce func() bool
	out      Entries
	found    int

	// The entry whose connection's Control is running (see connections.go).
	reg     Entry
	raw     syscall.RawConn
	held    bool // the port holds the connection already
	inside  bool
	control func(uintptr)
	redo    []redo
	// used are the sockets of package sock that the entries name, until Complete.
	used []*fdstate.FD
	// saved counts fast enables, until Complete.
	saved uint64
	// spare is for the next connection that is accepted.
	spare *sock.Socket
	// deregisters is set for Deregister: instead of queueing an EventRemove, the removal stores its record in deregistered.
	deregisters  bool
	deregistered *Record
}

func newCall(p *Port) *Call {
	w := &Call{
		port:   p,
		stripe: &p.Core.Stripes[p.calls.Add(1)%Stripes],
		wake:   make(chan struct{}, 1),
	}
	w.pollOnce = func() bool {
		w.found = w.port.Dequeue(w, w.out)
		return w.found > 0
	}
	w.control = func(fd uintptr) {
		w.inside = true
		w.port.apply(w, &w.reg, fd)
		w.port.flush(w)
	}
	return w
}

// Begin starts a call. It returns nil if the port is closed.
func (p *Port) Begin() *Call {
	w := p.pool.Get().(*Call)
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
