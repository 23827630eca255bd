package afd

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
)

const rounds = 30

// An arrival after the look, which is when the caller believes that it may sleep.
func TestArrivalBetweenLookAndSleep(t *testing.T) {
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

// What an earlier Park left unharvested is the look's to find.
func TestReadyBeforePark(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for range rounds {
		park(t, p, time.Time{}, func() bool { write(t, b); return false })
		looked := false
		park(t, p, time.Time{}, func() bool { looked = true; return len(harvest(p)) > 0 })
		if !looked {
			t.Fatal("Park did not look")
		}
		read(a)
		apply(t, p, backend.Set, a, 1, in)
		// And an arrival after that wakes again.
		park(t, p, time.Time{}, func() bool { write(t, b); return false })
		harvest(p)
		read(a)
		apply(t, p, backend.Set, a, 1, in)
	}
}

// Somebody else harvests what woke the parked goroutine, which parks again and must be woken again.
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

// A socket that is registered, or enabled, while somebody is parked is reported to him.
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

// A harvest by somebody else must not swallow the bell of one that is parked.
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
	// Nor the parked one's own look, in which the bell is already there.
	for range rounds {
		park(t, p, time.Time{}, func() bool { p.Wake(); return len(harvest(p)) > 0 })
		park(t, p, time.Now(), func() bool { time.Sleep(time.Millisecond); return len(harvest(p)) > 0 })
	}
}

// A deadline ends a Park, and leaves nothing behind that ends a later one for good.
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
				t.Fatal("Park returns again and again without cause")
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

// Park is not early where nothing has happened: the layer would spin.
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

// A harvest asks for no more than it has room for, and what is left comes with the next.
func TestHarvestTakesNoMoreThanRoom(t *testing.T) {
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
