//go:build unix

package socknotify

import (
	"testing"

	"github.com/socknotify/socknotify/internal/sockettest"
	"github.com/socknotify/socknotify/sock"
)

// waitForEnd waits until the end of a stream has arrived, behind unread data. A poll by the backend does not show that
// everywhere, so the system is asked.
func waitForEnd[K comparable](t *testing.T, _ *Port[K], x *sock.Socket) {
	t.Helper()
	if sockettest.HidesEnd {
		t.Skip("this system does not report the end of a stream behind unread data")
	}
	eventually(t, "the end of the stream", func() bool {
		return sockettest.Now(int(x.Handle()))&sockettest.PeerClosed != 0
	})
}
