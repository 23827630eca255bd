package socknotify

import (
	"sync"
	"testing"
)

// One at a time is inside, and what they count adds up.
func TestTurnstile(t *testing.T) {
	const goroutines, each = 16, 5_000
	var s turnstile
	inside, total := 0, 0
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				s.enter()
				if inside++; inside != 1 {
					t.Errorf("%d inside", inside)
				}
				by := 2
				if i%2 == 0 {
					by = -1
				}
				total += by
				inside--
				s.leave(by)
			}
		})
	}
	wg.Wait()
	if want := goroutines * each / 2; total != want || s.count() != uint64(want) {
		t.Errorf("counted %d, %d; want %d", total, s.count(), want)
	}
	if s.state.Load() != s.count()<<turnstileShift {
		t.Errorf("state %x", s.state.Load())
	}
}

// Those who have gone to sleep are woken, also where others get in before them.
func TestTurnstileSleepers(t *testing.T) {
	const rounds, sleepers = 50, 8
	var s turnstile
	for range rounds {
		s.enter()
		var wg sync.WaitGroup
		for range sleepers {
			wg.Go(func() {
				s.enter()
				s.leave(1)
			})
		}
		eventually(t, "somebody sleeps", func() bool { return s.state.Load()&turnstileCrowd != 0 })
		s.leave(0)
		s.enter()
		s.leave(0)
		wg.Wait()
	}
	if s.state.Load() != rounds*sleepers<<turnstileShift {
		t.Errorf("state %x", s.state.Load())
	}
}
