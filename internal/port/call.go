package port

import (
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// maxReports is how many reports a harvest takes from the kernel at once.
const maxReports = 128

// A Call is what one call inside the port works with. Calls are pooled, so that the steady state
// allocates nothing (C7).
type Call struct {
	port   *Port
	stripe *stripe
	batch  batch
	ready  [maxReports]backend.Ready
	single [1]backend.Change

	// turn alternates between the queue and the kernel when only one entry is left to fill (Q2).
	turn bool

	// Sleeping (see waiters).
	wake   chan struct{} // capacity 1: a token for each time that another has taken it off the list
	woken  bool          // it has taken that token
	timer  *time.Timer
	listed bool
	prev   *Call
	after  *Call
	// look dequeues into out and reports whether there was anything, for backend.Poller.Park.
	look  func() bool
	out   Entries
	found int

	// The connection that is being acted on (see connections.go).
	reg     Entry
	raw     syscall.RawConn
	held    bool // the port holds it already
	inside  bool
	control func(uintptr)
	redo    []redo
	// used are the sockets of package sock that the entries are for, until complete.
	used []*fdstate.FD
	// saved counts the entries that cost no system call, until complete.
	saved uint64
	// joint is what this call has the kernel do together; nil until then.
	joint *joint
	// spare is for the next connection that is accepted.
	spare *sock.Socket
	// The operation that the kernel is given (see transfers.go).
	transfer *Overlapped
	use      backend.FileUse
	fd       uintptr
	begun    bool // it took it
	onFile   func(uintptr)
	// deregisters says that the EventRemove of a removal is not queued, and deregistered is then that removal's record (Deregister).
	deregisters  bool
	deregistered *Record
}

func newCall(p *Port) *Call {
	w := &Call{
		port:   p,
		stripe: &p.Core.Stripes[p.calls.Add(1)%Stripes],
		wake:   make(chan struct{}, 1),
	}
	w.look = func() bool {
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

// Begin counts a call in; nil says that the port is closed.
func (p *Port) Begin() *Call {
	w := p.pool.Get().(*Call)
	if !w.stripe.Enter(p.Core) {
		p.pool.Put(w)
		return nil
	}
	return w
}

func (p *Port) End(w *Call) {
	w.stripe.Leave(p.Core)
	p.pool.Put(w)
}
