package socknotify

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/internal/test/await"
)

// The interleavings below lose or misdirect a notification if done otherwise. In each of them a
// harvester has taken a report from the kernel, and others act before it reads the slot: the
// hook runs exactly there.

func TestReportHeldAcrossRemoval(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		h.During(func() { do(t, p, removeHandle[string](x.Handle())) })
		if nt := next(t, p); nt.Events != EventRemove {
			t.Fatalf("G4, G5: got %v; want REMOVE alone", nt.Events)
		}
		none(t, p)
	})
}

func TestReportHeldAcrossReuse(t *testing.T) {
	nextHasNumber(t)
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "same", EventIn|EventHangup, oneShot))
		send(t, y)
		h.During(func() {
			number := x.Handle()
			x.Close()
			a, _ := newPair(t)
			if a.Handle() != number {
				t.Fatalf("number %d was not reused: %d", number, a.Handle())
			}
			// With the same key, as when the number is the key.
			do(t, p, enableHandle(a.Handle(), "same", EventIn|EventHangup, oneShot))
		})
		none(t, p) // G9: nothing of the old socket for the new registration
	})
}

func TestReportHeldAcrossEnable(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		h.During(func() { do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot)) })
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("got %v", nt.Events)
		}
		none(t, p) // T3: at most one per enable
	})
}

func TestReportHeldAcrossDisable(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		h.During(func() { do(t, p, disableHandle[string](x.Handle())) })
		none(t, p)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		if nt := next(t, p); nt.Events != EventIn {
			t.Fatalf("T6: got %v", nt.Events)
		}
	})
}

// Two harvesters hold a report of one one-shot registration.
func TestTwoReportsOneShot(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		if !p.port.Core.OwnEdges {
			return // a report suppresses the handle, so there is never a second one
		}
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		h.During(func() {
			send(t, y) // another edge, which another waiter takes
			if nt := next(t, p); nt.Events != EventIn {
				t.Fatalf("got %v", nt.Events)
			}
		})
		none(t, p)
		drain(t, x)
		// The report that was not delivered must have left its mark: this enable has to ask.
		r := enableHandle(x.Handle(), "x", EventIn, oneShot)
		r.Drained = true
		saved := p.Stats().FastEnables
		do(t, p, r)
		if p.Stats().FastEnables != saved {
			t.Fatal("X5: enabled without the kernel though a report was pending")
		}
		none(t, p) // and pending is never delivered from: the socket is drained
		send(t, y)
		next(t, p)
	})
}

// Data arrives after the last receive would have blocked and before a fast enable.
func TestArrivalBeforeFastEnable(t *testing.T) {
	for _, harvested := range []bool{false, true} {
		onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
			x, y := newPair(t)
			do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
			send(t, y)
			next(t, p)
			drain(t, x)
			send(t, y)
			if harvested {
				none(t, p) // takes the edge while disabled
			}
			r := enableHandle(x.Handle(), "x", EventIn, oneShot)
			r.Drained = true
			do(t, p, r)
			next(t, p)
		})
	}
}

// A peer that keeps on sending to a disabled registration is suppressed, and reported again when enabled.
func TestSuppressedAndEnabledAgain(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		reports := 0
		h.After = func(r []backend.Ready) { reports += len(r) }
		for range 20 {
			send(t, y)
			none(t, p)
		}
		if reports > 2 {
			t.Fatalf("%d reports for a disabled registration; want at most 2", reports)
		}
		drain(t, x)
		r := enableHandle(x.Handle(), "x", EventIn, oneShot)
		r.Drained = true
		do(t, p, r)
		none(t, p)
		send(t, y)
		next(t, p)
	})
}

// The kernel's report comes between the slot's change and the kernel's own: the registration must be
// enabled by then.
func TestReportInsideEnable(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		send(t, y)
		next(t, p)
		changed := false
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 && changes[0].Action == backend.Set {
				changed = true
				h.Before = nil
				// What another goroutine would see right after the kernel's change.
				s := p.port.Table.Lookup(uint32(x.Handle()))
				if w := s.Word.Load(); w&port.WEnabled == 0 || !port.SameEpoch(w, changes[0].Token) {
					t.Errorf("the backend is changed before the slot: %#x", w)
				}
			}
		}
		do(t, p, enableHandle(x.Handle(), "x", EventIn, oneShot))
		if !changed {
			t.Fatal("enabling did not ask the kernel")
		}
		next(t, p)
	})
}

// A socket closed and its number reused while a removal is on its way to the kernel.
func TestRemovalOfReusedNumber(t *testing.T) {
	nextHasNumber(t)
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, _ := newPair(t)
		do(t, p, enableHandle(x.Handle(), "old", EventIn, oneShot))
		number := x.Handle()
		x.Close()
		a, b := newPair(t)
		if a.Handle() != number {
			t.Fatalf("number %d was not reused: %d", number, a.Handle())
		}
		do(t, p, enableHandle(number, "new", EventIn, oneShot)) // G12: another key is no mismatch
		send(t, b)
		if nt := next(t, p); nt.Key != "new" {
			t.Fatalf("got %+v", nt)
		}
		do(t, p, removeHandle[string](number))
		if nt := next(t, p); nt.Key != "new" || nt.Events != EventRemove {
			t.Fatalf("got %+v", nt)
		}
		none(t, p)
		if n := p.Stats().Registrations; n != 0 {
			t.Fatalf("%d registrations left", n)
		}
	})
}

// Two batches name the same sockets in opposite order, again and again.
func TestOppositeBatches(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		const sockets, rounds = 8, 300
		var forth, back []Registration[string]
		for range sockets {
			x, _ := newPair(t)
			r := enableHandle(x.Handle(), "k", EventIn, oneShot)
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
		x, y := newPair(t)
		do(t, p, enableHandle(x.Handle(), "x", EventIn, persistent))
		send(t, y)
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
		onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
			level(t, p)
			var result chan error
			h.During(func() { result = poll(p) })
			next(t, p)
			if err := <-result; err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("list taken", func(t *testing.T) {
		onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
			level(t, p)
			next(t, p)
			var result chan error
			h.Before = func(changes []backend.Change) {
				if len(changes) > 0 {
					h.Before = nil
					result = poll(p)
				}
			}
			for result == nil { // a call that has slept may have taken the list before it returned
				next(t, p)
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
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		idle, _ := newPair(t)
		do(t, p, enableHandle(idle.Handle(), "idle", EventIn, oneShot))
		x, y := newPair(t)
		send(t, y)
		waited := make(chan error, 1)
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 {
				return
			}
			h.Before = nil
			do(t, p, enableHandle(x.Handle(), "x", EventIn, persistent))
			h.During(func() {
				var out [1]Notification[string]
				if _, err := p.Process(nil, out[:], 0); err != nil && err != ErrTimeout {
					t.Error(err)
				}
				go func() {
					_, err := p.Process(nil, out[:], soon)
					waited <- err
				}()
				asleep(t, p, 1)
			})
		}
		next(t, p)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}
