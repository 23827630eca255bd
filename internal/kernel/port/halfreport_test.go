package port_test

import (
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// A system sets the error of a reset stream a moment before its end. A report from between the two has the error alone, and
// the notification says all of it (E5).
func TestReportOfHalfAReset(t *testing.T) {
	if wine.TakesError.Here() {
		t.Skip(wine.TakesError)
	}
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.TCPPair(t)
		if err := y.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		y.Close()
		const dead = backend.Err | backend.Dead
		await.Until(t, "the reset", func() bool { return port.Of(p).Core.Poller.PollOne(x.Handle())&dead == dead })
		halves := 0
		h.After = func(ready []backend.Ready) {
			for i := range ready {
				if ready[i].Mask&dead == dead {
					ready[i].Mask &^= backend.Dead | backend.PeerClosed
					halves++
				}
			}
		}
		porttest.Do(t, p, Enable(x, "x", EventIn|EventOut|EventHangup, porttest.OneShot))
		if nt := porttest.Next(t, p); nt.Events != EventIn|EventHangup|EventErr || halves == 0 {
			t.Fatalf("got %v, of %d halves; want all of a reset", nt.Events, halves)
		}
	})
}

// The same of a stream that lives on: an error alone is no end.
func TestReportOfAnErrorAlone(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.TCPPair(t)
		porttest.Send(t, y)
		await.Until(t, "data", func() bool { return port.Of(p).Core.Poller.PollOne(x.Handle())&backend.In != 0 })
		h.After = func(ready []backend.Ready) {
			for i := range ready {
				ready[i].Mask |= backend.Err
			}
		}
		porttest.Do(t, p, Enable(x, "x", EventIn|EventOut|EventHangup, porttest.OneShot))
		if nt := porttest.Next(t, p); nt.Events != EventIn|EventOut|EventErr {
			t.Fatalf("got %v; want no hang-up", nt.Events)
		}
	})
}
