package park

import (
	"context"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
)

// listen calls serve with a new listener.
func listen(network, address string, serve func(net.Listener) error) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return serve(l)
}

// accept accepts connections and calls admit for each, until l fails for good or stopped is closed. It returns the error
// that it ended with. After a temporary error it calls failed with the time that it waits before it tries again, as net/http
// does.
func accept(l net.Listener, stopped <-chan struct{}, admit func(net.Conn), failed func(err error, wait time.Duration)) error {
	var wait time.Duration
	for {
		conn, err := l.Accept()
		if err == nil {
			wait = 0
			admit(conn)
			continue
		}
		//lint:ignore SA1019 net/http uses it
		if e, ok := err.(net.Error); !ok || !e.Temporary() {
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		failed(err, wait)
		select {
		case <-time.After(wait):
		case <-stopped:
			return err
		}
	}
}

// drain waits until drained is closed, or ctx is done. closeSilent closes the connections whose time for the first request
// is over, and returns when the next time is over, or zero if none is left.
func drain(ctx context.Context, c clock.Clock, drained <-chan struct{}, closeSilent func() (next time.Time)) {
	for {
		over := make(chan struct{})
		if next := closeSilent(); !next.IsZero() {
			timer := c.AfterFunc(next.Sub(c.Now()), func() { close(over) })
			defer timer.Stop()
		}
		select {
		case <-drained:
			return
		case <-ctx.Done():
			return
		case <-over:
		}
	}
}
