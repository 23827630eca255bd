package socknotify

import (
	"context"
	"runtime"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/tie"
)

// A port keeps the contract without knowing the type of the keys. It is the first field of a Port[K], so that a weak
// pointer to it is one to that.
type port struct {
	parking   parking // first, for its place in cache lines
	queue     queueEnds
	core      *core
	typed     typed
	table     table
	conns     connTable
	pool      sync.Pool // of *call
	calls     atomic.Uint32
	relook    atomic.Uint32 // head of the list of slots whose level the kernel must be asked again: index + 1
	levels    levels
	files     *files
	transfers *transfers // nil where the kernel cannot
	// checksKeys says that keys must be checked before they are compared.
	checksKeys bool
}

// init makes a port on a kernel's queue, which it owns from here on.
func (p *port) init(k kernel.Poller, backend string, t typed, q queueEnds, checksKeys bool) {
	p.core = &core{kernel: k, edges: k.Edges(), ownEdges: k.Edges(), backend: backend, left: make(chan struct{}, 1)}
	p.typed, p.queue, p.checksKeys = t, q, checksKeys
	if b, ok := k.(kernel.Batcher); ok {
		p.core.batcher, p.core.least = b, b.Least()
	}
	p.pool.New = func() any { return newCall(p) }
	self := weak.Make(p)
	p.files = newFiles(self, p.core)
	p.transfers = newTransfers(k)
	p.core.displaced = func(index uint32) {
		if p := self.Value(); p != nil {
			p.displaced(index)
		}
	}
	p.core.probe = func(index uint32) (has, busy bool, err error) {
		if p := self.Value(); p != nil {
			return p.contested(index)
		}
		return false, false, nil
	}
	p.core.owner = tie.Owner{
		Closing: func(t *tie.Tie, handle uintptr) {
			if p := self.Value(); p != nil {
				p.sockClosing(t, handle)
			}
		},
		Blocked: func(handle uintptr, d tie.Dir) {
			if p := self.Value(); p != nil {
				p.sockBlocked(handle, d)
			}
		},
	}
	p.core.drained = func(index uint32, told uint64) {
		if p := self.Value(); p != nil {
			p.drained(index, told)
		}
	}
	p.core.resume = func(index uint32) {
		if p := self.Value(); p != nil {
			p.resume(index)
		}
	}
	claims.enrol(p.core)
}

// close ends every call, and returns when none is inside. The queue is closed already.
func (p *port) close() error {
	p.parking.close(p.core)
	p.files.close()
	err := p.core.shut(p.transfers.drop)
	p.table.drop()
	p.conns.drop()
	runtime.KeepAlive(p)
	return err
}

// queueEnds are the locks of a queue, which count what has gone in and out.
type queueEnds struct{ in, out *turnstile }

// any reports whether the queue holds anything.
func (q queueEnds) any() bool { return q.in.count() != q.out.count() }

// removeNow removes a registration and returns its record, which has the key for the EventRemove that is not queued.
func (p *port) removeNow(ctx context.Context, r *entry) (*record, error) {
	w := p.begin()
	if w == nil {
		return nil, ErrClosed
	}
	if ctx == nil {
		p.end(w)
		return nil, callError("RemoveWait", "a nil context")
	}
	if ctx.Err() != nil {
		p.end(w)
		return nil, context.Cause(ctx)
	}
	w.takes = true
	p.register(w, r)
	p.complete(w)
	rec := w.taken
	w.takes, w.taken = false, nil
	p.end(w)
	return rec, *r.result
}

// dequeueIn is the second half of a call, whose first has processed its entries.
func (p *port) dequeueIn(w *call, ctx context.Context, out entries, timeout time.Duration) (n int, err error) {
	switch {
	case out.len() == 0:
		p.passOn()
	case ctx.Err() != nil:
		p.passOn()
		err = context.Cause(ctx)
	case timeout == 0:
		if n = p.lastLook(w, out); n == 0 {
			err = ErrTimeout
		}
	default:
		if n = p.dequeue(w, out); n == 0 {
			n, err = p.sleep(w, ctx, out, timeout)
		}
	}
	return n, err
}

func traced(ctx context.Context, n, room int) {
	if n > 0 && trace.IsEnabled() {
		traceBatch(ctx, n, room)
	}
}
