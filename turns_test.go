package socknotify_test

import (
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// A call that polls finds what is queued, whether the queue or the backend comes first (Q1, C4): where the other
// has nothing, the entries are for the one that has, all of them.
func TestPollFindsQueueAndBackend(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Send(t, y)
		for _, room := range []int{1, 2, 5} {
			out := make([]Notification[string], room)
			for range 4 {
				for range room {
					p.Post("p", 0)
				}
				if n, err := p.Process(nil, out, 0); n != room || err != nil {
					t.Fatalf("room for %d: Wait = %d, %v; want all that were posted", room, n, err)
				}
				porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
				if n, err := p.Process(nil, out, 0); n != 1 || err != nil || out[0].Key != "x" {
					t.Fatalf("room for %d: Wait = %d, %v; want the socket", room, n, err)
				}
			}
		}
	})
}
