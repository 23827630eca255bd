package port

import (
	"context"
	"io"
	"runtime"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
)

// A Port implements the contract without knowing the type of the keys. It is the first field of a socknotify.Port[K], so a
// weak pointer to it is a weak pointer to that.
type Port struct {
	Waiters  waiters // first, for its place in cache lines
	queue    QueueEnds
	Core     *Core
	typed    Typed
	Table    table
	conns    connTable
	pool     sync.Pool // of *Call
	calls    atomic.Uint32
	rechecks atomic.Uint32 // head of the list of slots to be polled again: index + 1
	levels   levels
	// checksKeys is set if keys must be checked before they are compared.
	checksKeys bool
}

// Of returns the port inside a *socknotify.Port[K], for any K. Package socknotify sets it. The packages above it call it
// once for each port that they are given.
var Of func(p any) *Port

// Init makes a port on a backend, which it owns from here on.
func (p *Port) Init(poller backend.Poller, name string, t Typed, q QueueEnds, checksKeys bool) {
	p.Core = &Core{Poller: poller, Edges: poller.Edges(), OwnEdges: poller.Edges(), Backend: name, left: make(chan struct{}, 1)}
	p.typed, p.queue, p.checksKeys = t, q, checksKeys
	p.pool.New = func() any { return newCall(p) }
	self := weak.Make(p)
	p.Core.port = self
	p.Core.transferred = func(index uint32) {
		if p := self.Value(); p != nil {
			p.transferred(index)
		}
	}
	p.Core.probe = func(index uint32) (has, busy bool, err error) {
		if p := self.Value(); p != nil {
			return p.probeForTransfer(index)
		}
		return false, false, nil
	}
	p.Core.owner = fdstate.Owner{
		Closing: func(t *fdstate.FD, handle uintptr) {
			if p := self.Value(); p != nil {
				p.sockClosing(t, handle)
			}
		},
		Blocked: func(handle uintptr, d fdstate.Dir) {
			if p := self.Value(); p != nil {
				p.sockBlocked(handle, d)
			}
		},
		ShutSend: func(t *fdstate.FD, handle uintptr) {
			if p := self.Value(); p != nil {
				p.sockShutSend(t, handle)
			}
		},
	}
	p.Core.drained = func(index uint32, reported uint64) {
		if p := self.Value(); p != nil {
			p.drained(index, reported)
		}
	}
	p.Core.resume = func(index uint32) {
		if p := self.Value(); p != nil {
			p.resume(index)
		}
	}
	owners.addPort(p.Core)
}

// Close makes every call return, and waits until none is inside. The queue is closed already.
func (p *Port) Close() error {
	p.Waiters.close(p.Core)
	err := p.Core.shut()
	if f := p.Core.Files.Load(); f != nil {
		f.(io.Closer).Close()
	}
	p.Table.pages.Drop()
	p.conns.drop()
	runtime.KeepAlive(p)
	return err
}

// QueueEnds are the locks of the two ends of a queue. Each counts the entries that have passed it.
type QueueEnds struct{ In, Out *Turnstile }

// any reports whether the queue holds anything.
func (q QueueEnds) any() bool { return q.In.Count() != q.Out.Count() }

// Deregister removes a registration and returns its record, which has the key. No EventRemove is queued.
func (p *Port) Deregister(r *Entry) (*Record, error) {
	w := p.Begin()
	if w == nil {
		return nil, ErrClosed
	}
	w.deregisters = true
	p.Register(w, r)
	p.Complete(w)
	rec := w.deregistered
	w.deregisters, w.deregistered = false, nil
	p.End(w)
	return rec, *r.Result
}

// DequeueIn dequeues, and waits for the first notification. The entries of the call have been processed.
func (p *Port) DequeueIn(w *Call, ctx context.Context, out Entries, timeout time.Duration) (n int, err error) {
	switch {
	case out.Len() == 0:
		p.wakeForQueue()
	case ctx.Err() != nil:
		p.wakeForQueue()
		err = context.Cause(ctx)
	case timeout == 0:
		if n = p.dequeueAlone(w, out); n == 0 {
			err = ErrTimeout
		}
	default:
		if n = p.Dequeue(w, out); n == 0 {
			n, err = p.wait(w, ctx, out, timeout)
		}
	}
	return n, err
}

// Names in an execution trace (runtime/trace), in the task of the call's context.
const (
	regionWait = "socknotify.wait"  // a region in which a call waits
	logBatch   = "socknotify.batch" // a log entry with the number of notifications and of entries
)

func Traced(ctx context.Context, n, room int) {
	if n > 0 && trace.IsEnabled() {
		trace.Logf(ctx, logBatch, "%d of %d", n, room)
	}
}
