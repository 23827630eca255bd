package afd

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	testawait "github.com/socknotify/socknotify/internal/test/await"
)

const rounds = 30

// Data arrives after Park's poll, when the caller believes that it may sleep.
func TestArrivalBetweenPollAndSleep(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for range rounds {
		park(t, p, time.Time{}, func() bool { write(t, b); return false })
		if len(harvest(p)) != 1 {
			t.Fatal("no report")
		}
		read(a)
		apply(t, p, backend.Set, a, 1, in)
	}
}

// Park's poll finds a report that an earlier Park left unharvested.
func TestReadyBeforePark(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for range rounds {
		park(t, p, time.Time{}, func() bool { write(t, b); return false })
		polled := false
		park(t, p, time.Time{}, func() bool { polled = true; return len(harvest(p)) > 0 })
		if !polled {
			t.Fatal("Park did not poll")
		}
		read(a)
		apply(t, p, backend.Set, a, 1, in)
		// A later arrival wakes again.
		park(t, p, time.Time{}, func() bool { write(t, b); return false })
		harvest(p)
		read(a)
		apply(t, p, backend.Set, a, 1, in)
	}
}

// Another goroutine harvests the report that woke the parked one, which parks again and must be woken again.
func TestAnotherHarvestsFirst(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for range rounds {
		write(t, b)
		await(t, p)
		read(a)
		apply(t, p, backend.Set, a, 1, in)
		done := make(chan struct{})
		park(t, p, time.Time{}, func() bool {
			go func() { write(t, b); close(done) }()
			return false
		})
		<-done
		harvest(p)
		read(a)
		apply(t, p, backend.Set, a, 1, in)
	}
}

// A socket that is registered or enabled while a goroutine is parked ends the Park.
func TestChangeUnderParked(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	write(t, b)
	for i := range rounds {
		action := backend.Set
		if i%3 == 0 {
			action = backend.Add
		}
		park(t, p, time.Time{}, func() bool {
			go change(p, action, a, uint64(i), in)
			return false
		})
		expect(t, p, uint64(i), backend.In)
		if i%3 == 2 {
			apply(t, p, backend.Delete, a, 0, 0)
		}
	}
}

func TestWakeIsSticky(t *testing.T) {
	p := open(t)
	p.Wake()
	park(t, p, time.Time{}, sleepOn)
	park(t, p, time.Time{}, func() bool { p.Wake(); return false })
	for range 10 * rounds {
		done := make(chan struct{})
		go func() { p.Wake(); close(done) }()
		park(t, p, time.Time{}, sleepOn)
		<-done
	}
	p.Wake()
	p.Wake()
	park(t, p, time.Time{}, sleepOn)
}

// A harvest by another goroutine does not lose the wake-up of the parked one.
func TestHarvestBesideWake(t *testing.T) {
	p := open(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				harvest(p)
			}
		}
	}()
	for range 10 * rounds {
		park(t, p, time.Time{}, func() bool { p.Wake(); return false })
		park(t, p, time.Now().Add(time.Millisecond), sleepOn)
	}
	close(stop)
	<-done
	// The poll of the parked goroutine itself does not lose it either.
	for range rounds {
		park(t, p, time.Time{}, func() bool { p.Wake(); return len(harvest(p)) > 0 })
		park(t, p, time.Now(), func() bool { testawait.Pause(time.Millisecond); return len(harvest(p)) > 0 })
	}
}

// A deadline ends a Park, and does not keep later ones from blocking.
func TestDeadline(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for range 20 {
		park(t, p, time.Now().Add(time.Millisecond), sleepOn)
		p.Wake()
		park(t, p, time.Time{}, sleepOn)
		park(t, p, time.Now().Add(-time.Second), sleepOn)
		written, parks := false, 0
		for len(harvest(p)) == 0 {
			if parks++; parks > 5 {
				t.Fatal("too many Parks returned without cause")
			}
			park(t, p, time.Time{}, func() bool {
				if !written {
					write(t, b)
					written = true
				}
				return false
			})
		}
		read(a)
		apply(t, p, backend.Set, a, 1, in)
	}
}

// Without a report, Park does not return before its deadline: the layer above would spin.
func TestDeadlineIsNotEarly(t *testing.T) {
	p := open(t)
	for _, d := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		start := time.Now()
		park(t, p, start.Add(d), sleepOn)
		if took := time.Since(start); took < d {
			t.Errorf("%v took %v", d, took)
		}
	}
}

// A harvest takes no more reports than fit into ready. The next harvest returns the rest.
func TestHarvestFillsNoMoreThanReady(t *testing.T) {
	p := open(t)
	const n = 9
	for i := range n {
		a, b := pair(t)
		write(t, b)
		apply(t, p, backend.Add, a, uint64(i), in)
	}
	seen := map[uint64]int{}
	for range n {
		seen[await(t, p).Token]++
	}
	if len(seen) != n {
		t.Fatalf("seen %v", seen)
	}
	none(t, p)
}
