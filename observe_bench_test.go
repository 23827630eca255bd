package socknotify_test

import (
	"fmt"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// The cost of being observed: one call enables a ready socket and dequeues its notification.
func BenchmarkObserved(b *testing.B) {
	for _, how := range []string{"not", "observed", "traced"} {
		b.Run(how, func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) {
				switch how {
				case "observed":
					defer debug.Observe(p)()
				case "traced":
					defer debug.StartTrace(p).Close()
				}
				x, y := pair(b)
				y.Send([]byte("x"))
				regs := []Registration[int]{enable(x, 1, EventIn, oneShot)}
				var out [4]Notification[int]
				for b.Loop() {
					if n, err := p.Process(regs, out[:], -1); n != 1 || err != nil {
						b.Fatal(n, err)
					}
				}
				must(b, regs)
			})
		})
	}
}

// A page of a hundred registrations.
func BenchmarkSnapshot(b *testing.B) {
	for _, limit := range []int{0, 100} {
		b.Run(fmt.Sprintf("limit=%d", limit), func(b *testing.B) {
			eachBackend(b, func(b *testing.B, p *Port[int]) {
				for range 100 {
					x, _ := pair(b)
					regs := []Registration[int]{enable(x, 1, EventIn, oneShot)}
					p.Process(regs, nil, 0)
					must(b, regs)
				}
				for b.Loop() {
					debug.TakeSnapshot(p, 0, limit)
				}
			})
		})
	}
}
