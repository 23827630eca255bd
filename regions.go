package socknotify

import (
	"context"
	"runtime/trace"
)

// regionHandle is the name of a region in an execution trace: the body of a loop over Port.All.
const regionHandle = "socknotify.handle"

// handled yields a notification, in a region where there is an execution trace.
func handled[K comparable](ctx context.Context, yield func(Notification[K]) bool, n Notification[K]) bool {
	if !trace.IsEnabled() {
		return yield(n)
	}
	// A body that panics, or ends its goroutine, ends the region too.
	defer trace.StartRegion(ctx, regionHandle).End()
	return yield(n)
}
