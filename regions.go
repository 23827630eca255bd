package socknotify

import (
	"context"
	"runtime/trace"
	"time"
)

// What an execution trace (runtime/trace) shows of a port: regions of the goroutines that call it, in the
// task of the call's context, and a log entry with the size of each batch.
const (
	regionRegister = "socknotify.register" // registrations being processed
	regionDequeue  = "socknotify.dequeue"  // looking for notifications without waiting
	regionWait     = "socknotify.wait"     // asleep until there are some
	regionHandle   = "socknotify.handle"   // the body of a loop over Port.All
	logBatch       = "socknotify.batch"    // how many were dequeued, and for how many there was room
)

// processTraced is what process does, in regions.
func (p *Port[K]) processTraced(w *call[K], ctx context.Context, regs []Registration[K], out []Notification[K], timeout time.Duration) (n int, err error) {
	if len(regs) > 0 {
		r := trace.StartRegion(ctx, regionRegister)
		p.registerAll(w, regs)
		r.End()
	}
	r := trace.StartRegion(ctx, regionDequeue)
	n, err = p.first(w, ctx, out, timeout)
	r.End()
	if n == 0 && err == nil && len(out) > 0 {
		r := trace.StartRegion(ctx, regionWait)
		n, err = p.sleep(w, ctx, out, timeout)
		r.End()
	}
	if n > 0 {
		trace.Logf(ctx, logBatch, "%d of %d", n, len(out))
	}
	return n, err
}

// handled yields a notification, in a region where there is an execution trace.
func handled[K comparable](ctx context.Context, yield func(Notification[K]) bool, n Notification[K]) bool {
	if !trace.IsEnabled() {
		return yield(n)
	}
	// A body that panics, or ends its goroutine, ends the region too.
	defer trace.StartRegion(ctx, regionHandle).End()
	return yield(n)
}
