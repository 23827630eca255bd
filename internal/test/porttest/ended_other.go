//go:build !unix

package porttest

import (
	"testing"

	//lint:ignore ST1001 what is tested has no name of its own here
	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// WaitForEnd waits until the end of a stream has arrived, behind unread data.
func WaitForEnd[K comparable](t *testing.T, p *Port[K], x *sock.Socket) {
	t.Helper()
	await.Until(t, "the end of the stream", func() bool {
		return port.Of(p).Core.Poller.PollOne(x.Handle())&backend.PeerClosed != 0
	})
}
