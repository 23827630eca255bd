package port

import (
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/await"
)

// One at a time is inside, and what they count adds up.
func TestTurnstile(t *testing.T) {
	const goroutines, each = 16, 5_000
	var s Turnstile
	inside, total := 0, 0
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range each {
				s.Enter()
				if inside++; inside != 1 {
					t.Errorf("%d inside", inside)
				}
				by := 2
				if i%2 == 0 {
					by = -1
				}
				total += by
				inside--
				s.Leave(by)
			}
		})
	}
	wg.Wait()
	if want := goroutines * each / 2; total != want || s.Count() != uint64(want) {
		t.Errorf("counted %d, %d; want %d", total, s.Count(), want)
	}
	if s.state.Load() != s.Count()<<turnstileShift {
		t.Errorf("state %x", s.state.Load())
	}
}

// Those who have gone to sleep are woken, also where others get in before them.
func TestTurnstileWaiters(t *testing.T) {
	const rounds, sleepers = 50, 8
	var s Turnstile
	for range rounds {
		s.Enter()
		var wg sync.WaitGroup
		for range sleepers {
			wg.Go(func() {
				s.Enter()
				s.Leave(1)
			})
		}
		await.Until(t, "a waiter", func() bool { return s.state.Load()&turnstileCrowd != 0 })
		s.Leave(0)
		s.Enter()
		s.Leave(0)
		wg.Wait()
	}
	if s.state.Load() != rounds*sleepers<<turnstileShift {
		t.Errorf("state %x", s.state.Load())
	}
}
