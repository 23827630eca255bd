// Package await is how tests wait: for what must happen, however slow the machine is, and never in the
// hope that something has happened.
package await

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// Limit is the time after which something that must happen is taken not to happen.
const Limit = 2 * time.Minute

// Until waits until cond returns true, which it asks as often as Attempts repeats a loop.
func Until(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for range Attempts(tb, what) {
		if cond() {
			return
		}
	}
}

// Attempts repeats the body of a loop until it ends the loop: after 10 microseconds at first, then less
// often, but at least every millisecond. After Limit the test fails, with the stacks of all goroutines.
func Attempts(tb testing.TB, what string) iter.Seq[int] {
	tb.Helper()
	return func(yield func(int) bool) {
		tb.Helper()
		end, pause := time.Now().Add(Limit), 10*time.Microsecond
		for i := 0; yield(i); i++ {
			if time.Now().After(end) {
				fail(tb, what)
			}
			time.Sleep(pause)
			pause = min(2*pause, time.Millisecond)
		}
	}
}

// Value is Receive for a channel whose name says what is awaited.
func Value[T any](tb testing.TB, ch <-chan T) T {
	tb.Helper()
	return Receive(tb, "a value", ch)
}

// Receive returns what comes from a channel.
func Receive[T any](tb testing.TB, what string, ch <-chan T) T {
	tb.Helper()
	late := time.NewTimer(Limit)
	defer late.Stop()
	select {
	case v := <-ch:
		return v
	case <-late.C:
		fail(tb, what)
		panic("unreachable")
	}
}

func fail(tb testing.TB, what string) {
	tb.Helper()
	stacks := make([]byte, 1<<20)
	tb.Fatalf("timed out waiting: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
}

// UpTo pauses an actor of a stress test for a random time, so that orders differ from run to run. The
// test holds in every order.
func UpTo(most time.Duration) { time.Sleep(rand.N(most)) }

// Pause lets a peer be slow, or gives others a chance to run first. The test holds if they do not.
func Pause(d time.Duration) { time.Sleep(d) }
