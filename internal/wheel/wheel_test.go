package wheel

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type item struct {
	timer Timer[*item]
	id    int
	fired atomic.Int64
}

func timerOf(x *item) *Timer[*item] { return &x.timer }

// A wheel that the test advances behaves like a list of deadlines.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fired []int
		again := map[int]time.Duration{} // the durations that fire sets again
		due := map[int]uint64{}
		var w *Wheel[*item]
		w = New(time.Second, timerOf, func(x *item) {
			fired = append(fired, x.id)
			if d, ok := again[x.id]; ok {
				w.Set(x, d)
			}
		})
		w.run = func() {}
		things := make([]*item, 8)
		for i := range things {
			things[i] = &item{id: i}
		}
		// Durations around the ends of the first revolutions, and any others.
		wait := rapid.OneOf(rapid.Int64Range(-1, 4), rapid.Int64Range(slotCount-3, slotCount+3), rapid.Int64Range(0, 3*slotCount))
		deadline := func(d time.Duration) uint64 {
			return w.Now() + 1 + uint64(max(0, (d+time.Second-1)/time.Second))
		}
		var scratch []*item
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				d := time.Duration(wait.Draw(t, "seconds"))*time.Second - time.Duration(rapid.IntRange(0, 1).Draw(t, "less"))
				_, want := due[x.id]
				if w.Set(x, d) != want {
					t.Fatalf("Set returned %v", !want)
				}
				due[x.id] = deadline(d)
			},
			"hasten": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				d := time.Duration(wait.Draw(t, "seconds")) * time.Second
				at, want := due[x.id]
				if w.Hasten(x, d) != want {
					t.Fatalf("Hasten returned %v", !want)
				}
				if due[x.id] = deadline(d); want {
					due[x.id] = min(at, deadline(d))
				}
			},
			"stop": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				_, want := due[x.id]
				if w.Stop(x) != want {
					t.Fatalf("Stop returned %v", !want)
				}
				delete(due, x.id)
			},
			"repeat": func(t *rapid.T) {
				again[rapid.IntRange(0, len(things)-1).Draw(t, "thing")] = time.Duration(wait.Draw(t, "seconds")) * time.Second
			},
			"step": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 2, slotCount - 1, slotCount + 1}).Draw(t, "ticks") {
					fired = nil
					var on bool
					scratch, on = w.advance(scratch)
					if on != (len(due) > 0) {
						t.Fatalf("advance returned %v with %d armed", on, len(due))
					}
					got := map[int]bool{}
					for _, id := range fired {
						if due[id] != w.Now() {
							t.Fatalf("%d fired at %d, is due at %d", id, w.Now(), due[id])
						}
						got[id] = true
					}
					for id, at := range due {
						if at <= w.Now() && !got[id] {
							t.Fatalf("%d did not fire at %d", id, at)
						}
					}
					for id := range got {
						delete(due, id)
						if d, ok := again[id]; ok {
							due[id] = deadline(d)
						}
					}
					if !on {
						break
					}
				}
			},
			"": func(t *rapid.T) {
				if w.armed != len(due) {
					t.Fatalf("%d armed, want %d", w.armed, len(due))
				}
			},
		})
	})
}

// The longest duration is a timer like others, and ticks are converted to it and back.
func TestLongestDuration(t *testing.T) {
	var fired []int
	w := New(time.Second, timerOf, func(x *item) { fired = append(fired, x.id) })
	w.run = func() {}
	long, short := &item{id: 1}, &item{id: 2}
	w.Set(long, math.MaxInt64)
	w.Set(short, 0)
	w.Hasten(short, math.MaxInt64)
	for range 2 * slotCount {
		w.advance(nil)
	}
	if len(fired) != 1 || fired[0] != short.id || !w.Stop(long) {
		t.Errorf("fired %v", fired)
	}
	const most = math.MaxInt64 / time.Second * time.Second
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Second, time.Second: time.Second, time.Second + 1: 2 * time.Second,
		most - 1: most, most: most, most + 1: most, math.MaxInt64: most,
	} {
		if got := w.Duration(w.Ticks(d)); got != want {
			t.Errorf("%d are %d ticks, which are %d", d, w.Ticks(d), got)
		}
	}
	if got := w.Duration(math.MaxUint64); got <= 0 {
		t.Errorf("the most ticks are %d", got)
	}
}

// With concurrent use, each armed timer either fires once or is stopped once.
func TestConcurrentUse(t *testing.T) {
	var fires, arms, stops atomic.Int64
	w := New(time.Millisecond, timerOf, func(x *item) { fires.Add(1) })
	things := make([]*item, 64)
	for i := range things {
		things[i] = &item{id: i}
	}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5000 {
				x := things[rng.IntN(len(things))]
				if rng.IntN(3) == 0 {
					if w.Stop(x) {
						stops.Add(1)
					}
				} else if !w.Set(x, time.Duration(rng.IntN(5))*time.Millisecond) {
					arms.Add(1)
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, func() bool { return arms.Load() == fires.Load()+stops.Load() })
	waitFor(t, func() bool { // the wheel's goroutine exits
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.running && w.armed == 0
	})
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for a condition")
		}
	}
}

func TestNotEarly(t *testing.T) {
	type stamp struct {
		timer Timer[*stamp]
		at    time.Time
		done  chan time.Time
	}
	w := New(2*time.Millisecond, func(s *stamp) *Timer[*stamp] { return &s.timer },
		func(s *stamp) { s.done <- time.Now() })
	defer w.Close()
	for d := range 20 {
		s := &stamp{done: make(chan time.Time, 1), at: time.Now()}
		d := time.Duration(d) * time.Millisecond
		w.Set(s, d)
		if took := (<-s.done).Sub(s.at); took < d {
			t.Errorf("fired after %v, set to %v", took, d)
		}
	}
}

func TestClose(t *testing.T) {
	w := New(time.Millisecond, timerOf, func(x *item) { x.fired.Add(1) })
	a, b := &item{}, &item{}
	w.Set(a, time.Hour)
	w.Set(b, time.Hour)
	w.Close()
	w.Close()
	if w.Stop(a) || w.Stop(b) || w.Set(a, 0) || w.Stop(a) {
		t.Error("a timer is armed after Close")
	}
}

// A long timeout takes several revolutions of the wheel.
func TestLongTimeout(t *testing.T) {
	w := New(50*time.Microsecond, timerOf, func(x *item) { x.fired.Store(1) })
	x := &item{}
	from := w.Now()
	w.Set(x, 3*slotCount*50*time.Microsecond)
	waitFor(t, func() bool { return x.fired.Load() == 1 })
	if n := w.Now() - from; n < 3*slotCount {
		t.Errorf("fired after %d ticks", n)
	}
}

func BenchmarkSetStop(b *testing.B) {
	w := New(time.Second, timerOf, func(*item) {})
	defer w.Close()
	x := &item{}
	b.ReportAllocs()
	for b.Loop() {
		w.Set(x, time.Minute)
		w.Stop(x)
	}
}
