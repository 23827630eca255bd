package port_test

import (
	"fmt"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// However many connections come at once, one call takes all that its entries hold, and what comes after that is
// notified as well.
func TestAcceptBursts(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := p.Accept(l, "l", 64); err != nil {
			t.Fatal(err)
		}
		var out [64]Notification[string]
		for _, n := range []int{1, 2, port.Asked, port.Asked + 1, port.Asked + 2, 40, 1} {
			for range n {
				porttest.Client(t, l)
			}
			await.Until(t, fmt.Sprint(n, " connections accepted"), func() bool {
				k, err := p.Process(nil, out[:], porttest.Soon)
				if err != nil {
					t.Fatal(err)
				}
				for _, nt := range out[:k] {
					s, err := nt.Accepted()
					if err != nil {
						t.Fatal(err)
					}
					s.Close()
				}
				n -= k
				return n == 0
			})
			porttest.None(t, p)
		}
	})
}
