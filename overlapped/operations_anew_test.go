package overlapped

import (
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// Two receives of a socket are in flight as their port is closed. Another port, which one of them is given to,
// knows nothing of the other (O10).
func TestStartedAgainAlone(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var first, second Op[string]
		var b [2]byte
		recv(t, p, x, b[:1], &first)
		recv(t, p, x, b[1:], &second)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		q, err := socknotify.New[string]()
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		recv(t, q, x, b[:1], &first)
		send(t, y)
		completes(t, q, &first, 1, nil)
		send(t, y)
		none(t, q)
		if b[1] != 0 {
			t.Error("received into a buffer of a port that is closed")
		}
	})
}
