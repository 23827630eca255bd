package socknotify

import (
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
	"github.com/socknotify/socknotify/sock"
)

// maxReports is how many reports a harvest takes from the kernel at once.
const maxReports = 128

// A call is what one call inside the port works with. Calls are pooled, so that the steady state
// allocates nothing (C7).
type call[K comparable] struct {
	port   *Port[K]
	stripe *stripe
	batch  batch[K]
	ready  [maxReports]kernel.Ready
	single [1]kernel.Change

	// turn alternates between the queue and the kernel when only one entry is left to fill (Q2).
	turn bool

	// Sleeping (see parking).
	wake   chan struct{} // capacity 1: a token for each time that another has taken it off the list
	woken  bool          // it has taken that token
	timer  *time.Timer
	listed bool
	prev   *call[K]
	after  *call[K]
	// look dequeues into out and reports whether there was anything, for kernel.Poller.Park.
	look  func() bool
	out   []Notification[K]
	found int

	// The connection that is being acted on (see conn.go).
	reg     *Registration[K]
	raw     syscall.RawConn
	held    bool // the port holds it already
	inside  bool
	control func(uintptr)
	redo    []redo[K]
	// used are the sockets of package sock that the entries are for, until complete.
	used []*tie.Tie
	// saved counts the entries that cost no system call, until complete.
	saved uint64
	// joint is what this call has the kernel do together; nil until then.
	joint *joint[K]
	// spare is for the next connection that is accepted.
	spare *sock.Socket
	// The operation that the kernel is given (see transfers.go).
	transfer *Overlapped[K]
	use      kernel.FileUse
	fd       uintptr
	begun    bool // it took it
	onFile   func(uintptr)
	// taken receives the key of a removal that is not to be queued (RemoveWait).
	taken *K
}

func newCall[K comparable](p *Port[K]) *call[K] {
	w := &call[K]{
		port:   p,
		stripe: &p.core.stripes[p.calls.Add(1)%stripes],
		wake:   make(chan struct{}, 1),
	}
	w.look = func() bool {
		w.found = w.port.dequeue(w, w.out)
		return w.found > 0
	}
	w.control = func(fd uintptr) {
		w.inside = true
		w.port.apply(w, w.reg, fd)
		w.port.flush(w)
	}
	return w
}

// begin counts a call in; nil says that the port is closed.
func (p *Port[K]) begin() *call[K] {
	w := p.pool.Get().(*call[K])
	if !w.stripe.enter(p.core) {
		p.pool.Put(w)
		return nil
	}
	return w
}

func (p *Port[K]) end(w *call[K]) {
	w.stripe.leave(p.core)
	p.pool.Put(w)
}
