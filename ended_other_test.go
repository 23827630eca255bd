//go:build !unix

package socknotify

import (
	"testing"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/sock"
)

// waitForEnd waits until the end of a stream has arrived, behind unread data.
func waitForEnd[K comparable](t *testing.T, p *Port[K], x *sock.Socket) {
	t.Helper()
	eventually(t, "the end of the stream", func() bool {
		return p.port.Core.Poller.PollOne(x.Handle())&backend.PeerClosed != 0
	})
}
