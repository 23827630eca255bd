package socknotify

import (
	"context"
	"runtime/trace"
)

// What an execution trace (runtime/trace) shows of a port, in the task of the call's context.
const (
	regionWait   = "socknotify.wait"   // a region: asleep until there is something to dequeue
	regionHandle = "socknotify.handle" // a region: the body of a loop over Port.All
	logBatch     = "socknotify.batch"  // a log entry: how many were dequeued, and for how many there was room
)

func traceBatch(ctx context.Context, dequeued, room int) {
	trace.Logf(ctx, logBatch, "%d of %d", dequeued, room)
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
