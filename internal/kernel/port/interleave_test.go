package port_test

import (
	"testing"
	"time"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/porttest"
)

// The interleavings below lose or misdirect a notification if done otherwise. In each of them a
// harvester has taken a report from the kernel, and others act before it reads the slot: the
// hook runs exactly there.

func TestReportHeldAcrossRemoval(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() { porttest.Do(t, p, porttest.RemoveHandle[string](x.Handle())) })
		if nt := porttest.Next(t, p); nt.Events != EventRemove {
			t.Fatalf("G4, G5: got %v; want REMOVE alone", nt.Events)
		}
		porttest.None(t, p)
	})
}

func TestReportHeldAcrossReuse(t *testing.T) {
	porttest.NextHasNumber(t)
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "same", EventIn|EventHangup, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() {
			number := x.Handle()
			x.Close()
			a, _ := porttest.Pair(t)
			if a.Handle() != number {
				t.Fatalf("number %d was not reused: %d", number, a.Handle())
			}
			// With the same key, as when the number is the key.
			porttest.Do(t, p, porttest.EnableHandle(a.Handle(), "same", EventIn|EventHangup, porttest.OneShot))
		})
		porttest.None(t, p) // G9: nothing of the old socket for the new registration
	})
}

func TestReportHeldAcrossEnable(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() { porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)) })
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
		porttest.None(t, p) // T3: at most one per enable
	})
}

func TestReportHeldAcrossDisable(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() { porttest.Do(t, p, porttest.DisableHandle[string](x.Handle())) })
		porttest.None(t, p)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		if nt := porttest.Next(t, p); nt.Events != EventIn {
			t.Fatalf("T6: got %v", nt.Events)
		}
	})
}

// Two harvesters hold a report of one one-shot registration.
func TestTwoReportsOneShot(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		if !port.Of(p).Core.OwnEdges {
			return // a report suppresses the handle, so there is never a second one
		}
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		h.During(func() {
			porttest.Send(t, y) // another edge, which another waiter takes
			if nt := porttest.Next(t, p); nt.Events != EventIn {
				t.Fatalf("got %v", nt.Events)
			}
		})
		porttest.None(t, p)
		porttest.Drain(t, x)
		// The report that was not delivered must have left its mark: this enable has to ask.
		r := porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)
		r.Drained = true
		saved := p.Stats().FastEnables
		porttest.Do(t, p, r)
		if p.Stats().FastEnables != saved {
			t.Fatal("X5: enabled without the kernel though a report was pending")
		}
		porttest.None(t, p) // and pending is never delivered from: the socket is drained
		porttest.Send(t, y)
		porttest.Next(t, p)
	})
}

// Data arrives after the last receive would have blocked and before a fast enable.
func TestArrivalBeforeFastEnable(t *testing.T) {
	for _, harvested := range []bool{false, true} {
		porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
			x, y := porttest.Pair(t)
			porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
			porttest.Send(t, y)
			porttest.Next(t, p)
			porttest.Drain(t, x)
			porttest.Send(t, y)
			if harvested {
				porttest.None(t, p) // takes the edge while disabled
			}
			r := porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)
			r.Drained = true
			porttest.Do(t, p, r)
			porttest.Next(t, p)
		})
	}
}

// A peer that keeps on sending to a disabled registration is suppressed, and reported again when enabled.
func TestSuppressedAndEnabledAgain(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		porttest.Next(t, p)
		reports := 0
		h.After = func(r []backend.Ready) { reports += len(r) }
		for range 20 {
			porttest.Send(t, y)
			porttest.None(t, p)
		}
		if reports > 2 {
			t.Fatalf("%d reports for a disabled registration; want at most 2", reports)
		}
		porttest.Drain(t, x)
		r := porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot)
		r.Drained = true
		porttest.Do(t, p, r)
		porttest.None(t, p)
		porttest.Send(t, y)
		porttest.Next(t, p)
	})
}

// The kernel's report comes between the slot's change and the kernel's own: the registration must be
// enabled by then.
func TestReportInsideEnable(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		porttest.Send(t, y)
		porttest.Next(t, p)
		changed := false
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 && changes[0].Action == backend.Set {
				changed = true
				h.Before = nil
				// What another goroutine would see right after the kernel's change.
				s := port.Of(p).Table.Lookup(uint32(x.Handle()))
				if w := s.State(); w&port.WEnabled == 0 || !port.SameEpoch(w, changes[0].Token) {
					t.Errorf("the backend is changed before the slot: %#x", w)
				}
			}
		}
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.OneShot))
		if !changed {
			t.Fatal("enabling did not ask the kernel")
		}
		porttest.Next(t, p)
	})
}

// A socket closed and its number reused while a removal is on its way to the kernel.
func TestRemovalOfReusedNumber(t *testing.T) {
	porttest.NextHasNumber(t)
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		x, _ := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "old", EventIn, porttest.OneShot))
		number := x.Handle()
		x.Close()
		a, b := porttest.Pair(t)
		if a.Handle() != number {
			t.Fatalf("number %d was not reused: %d", number, a.Handle())
		}
		porttest.Do(t, p, porttest.EnableHandle(number, "new", EventIn, porttest.OneShot)) // G12: another key is no mismatch
		porttest.Send(t, b)
		if nt := porttest.Next(t, p); nt.Key != "new" {
			t.Fatalf("got %+v", nt)
		}
		porttest.Do(t, p, porttest.RemoveHandle[string](number))
		if nt := porttest.Next(t, p); nt.Key != "new" || nt.Events != EventRemove {
			t.Fatalf("got %+v", nt)
		}
		porttest.None(t, p)
		if n := p.Stats().Registrations; n != 0 {
			t.Fatalf("%d registrations left", n)
		}
	})
}

// Two batches name the same sockets in opposite order, again and again.
func TestOppositeBatches(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		const sockets, rounds = 8, 300
		var forth, back []Registration[string]
		for range sockets {
			x, _ := porttest.Pair(t)
			r := porttest.EnableHandle(x.Handle(), "k", EventIn, porttest.OneShot)
			forth = append(forth, r, r)
			back = append([]Registration[string]{r}, back...)
		}
		done := make(chan error, 2)
		for _, regs := range [][]Registration[string]{forth, back} {
			go func() {
				for range rounds {
					p.Process(regs, nil, 0)
					for i := range regs {
						if err := regs[i].Result; err != nil {
							done <- err
							return
						}
					}
				}
				done <- nil
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A call has taken the report of a persistent level and not delivered it yet, or is about to make the
// kernel poll again. Another call that polls in between finds the level too (T1).
func TestLevelHarvestedByAnotherCall(t *testing.T) {
	level := func(t *testing.T, p *Port[string]) {
		x, y := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.Persistent))
		porttest.Send(t, y)
	}
	// poll starts a call that polls, gives it time to go wrong, and leaves it to the test to judge.
	poll := func(p *Port[string]) chan error {
		result := make(chan error, 1)
		go func() {
			var out [1]Notification[string]
			_, err := p.Process(nil, out[:], 0)
			result <- err
		}()
		await.Pause(20 * time.Millisecond) // so that it mostly polls first; it holds if it does not
		return result
	}
	t.Run("report taken", func(t *testing.T) {
		porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
			level(t, p)
			var result chan error
			h.During(func() { result = poll(p) })
			porttest.Next(t, p)
			if err := <-result; err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("list taken", func(t *testing.T) {
		porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
			level(t, p)
			porttest.Next(t, p)
			var result chan error
			h.Before = func(changes []backend.Change) {
				if len(changes) > 0 {
					h.Before = nil
					result = poll(p)
				}
			}
			for result == nil { // a call that has slept may have taken the list before it returned
				porttest.Next(t, p)
			}
			if err := <-result; err != nil {
				t.Fatal(err)
			}
		})
	})
}

// The first persistent level of a port may be hidden from a poll by a call that was polling before; but not from a
// wait (T1).
func TestFirstLevelHarvestedByAnotherCall(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		idle, _ := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(idle.Handle(), "idle", EventIn, porttest.OneShot))
		x, y := porttest.Pair(t)
		porttest.Send(t, y)
		waited := make(chan error, 1)
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 {
				return
			}
			h.Before = nil
			porttest.Do(t, p, porttest.EnableHandle(x.Handle(), "x", EventIn, porttest.Persistent))
			h.During(func() {
				var out [1]Notification[string]
				if _, err := p.Process(nil, out[:], 0); err != nil && err != ErrTimeout {
					t.Error(err)
				}
				go func() {
					_, err := p.Process(nil, out[:], porttest.Soon)
					waited <- err
				}()
				porttest.Waiting(t, p, 1)
			})
		}
		porttest.Next(t, p)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}
