//go:build unix

package porttest

import (
	"testing"

	//lint:ignore ST1001 what is tested has no name of its own here
	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/sock"
)

// WaitForEnd waits until the end of a stream has arrived, behind unread data. A poll by the backend
// does not show that everywhere, so the system is asked.
func WaitForEnd[K comparable](t *testing.T, _ *Port[K], x *sock.Socket) {
	t.Helper()
	if sockettest.HidesEnd {
		t.Skip("this system does not report the end of a stream behind unread data")
	}
	await.Until(t, "the end of the stream", func() bool {
		return sockettest.Now(int(x.Handle()))&sockettest.PeerClosed != 0
	})
}
