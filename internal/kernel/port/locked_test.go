package port_test

import (
	"fmt"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// A call that finds the slot of a socket with operations locked makes the backend poll again, and
// delivers the reports of other sockets.
func TestReportMeetsLockedSlot(t *testing.T) {
	for _, many := range []int{1, 6} {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
				ops := make([]overlapped.Op[string], many)
				peers := make([]*sock.Socket, many)
				var locked *port.Slot
				for i := range ops {
					x, y := porttest.Pair(t)
					peers[i] = y
					if err := overlapped.Recv(p, x, "k", make([]byte, 1), &ops[i]); err != nil {
						t.Fatal(err)
					}
					if i == many/3 {
						locked = port.Of(p).Table.Lookup(uint32(x.Handle()))
					}
				}
				porttest.None(t, p)
				for _, y := range peers {
					porttest.Send(t, y)
				}
				done := make(chan struct{})
				h.During(func() {
					locked.Mu.Lock()
					go func() {
						defer close(done)
						await.Until(t, "it is left for later", func() bool {
							return locked.State()&port.WRecheck != 0
						})
						locked.Mu.Unlock()
					}()
				})
				completed := make(map[*overlapped.Op[string]]bool)
				for range ops {
					nt := porttest.Next(t, p)
					op := overlapped.Of(&nt)
					if n, err := op.Result(); n != 1 || err != nil || completed[op] {
						t.Fatal(n, err, completed[op])
					}
					completed[op] = true
				}
				<-done
				porttest.None(t, p)
			})
		})
	}
}
