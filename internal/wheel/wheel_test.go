package wheel

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type thing struct {
	timer Timer[*thing]
	id    int
	fired atomic.Int64
}

func timerOf(x *thing) *Timer[*thing] { return &x.timer }

// A wheel that is turned by hand does what a list of deadlines says.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fired []int
		again := map[int]time.Duration{} // what fire arms again
		due := map[int]uint64{}
		var w *Wheel[*thing]
		w = New(time.Second, timerOf, func(x *thing) {
			fired = append(fired, x.id)
			if d, ok := again[x.id]; ok {
				w.Set(x, d)
			}
		})
		w.run = func() {}
		things := make([]*thing, 8)
		for i := range things {
			things[i] = &thing{id: i}
		}
		// Around the ends of the first rounds, or any.
		wait := rapid.OneOf(rapid.Int64Range(-1, 4), rapid.Int64Range(slots-3, slots+3), rapid.Int64Range(0, 3*slots))
		deadline := func(d time.Duration) uint64 {
			return w.Now() + 1 + uint64(max(0, (d+time.Second-1)/time.Second))
		}
		var scratch []*thing
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				d := time.Duration(wait.Draw(t, "seconds"))*time.Second - time.Duration(rapid.IntRange(0, 1).Draw(t, "less"))
				_, want := due[x.id]
				if w.Set(x, d) != want {
					t.Fatalf("Set says that it was armed: %v", !want)
				}
				due[x.id] = deadline(d)
			},
			"hasten": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				d := time.Duration(wait.Draw(t, "seconds")) * time.Second
				at, want := due[x.id]
				if w.Hasten(x, d) != want {
					t.Fatalf("Hasten says that it was armed: %v", !want)
				}
				if due[x.id] = deadline(d); want {
					due[x.id] = min(at, deadline(d))
				}
			},
			"stop": func(t *rapid.T) {
				x := rapid.SampledFrom(things).Draw(t, "thing")
				_, want := due[x.id]
				if w.Stop(x) != want {
					t.Fatalf("Stop says that it was armed: %v", !want)
				}
				delete(due, x.id)
			},
			"repeat": func(t *rapid.T) {
				again[rapid.IntRange(0, len(things)-1).Draw(t, "thing")] = time.Duration(wait.Draw(t, "seconds")) * time.Second
			},
			"step": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 2, slots - 1, slots + 1}).Draw(t, "ticks") {
					fired = nil
					var on bool
					scratch, on = w.step(scratch)
					if on != (len(due) > 0) {
						t.Fatalf("it goes on: %v, with %d armed", on, len(due))
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

// Whatever is armed fires once or is stopped once, however many goroutines do it.
func TestManyGoroutines(t *testing.T) {
	var fires, arms, stops atomic.Int64
	w := New(time.Millisecond, timerOf, func(x *thing) { fires.Add(1) })
	things := make([]*thing, 64)
	for i := range things {
		things[i] = &thing{id: i}
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
	wait(t, func() bool { return arms.Load() == fires.Load()+stops.Load() })
	wait(t, func() bool { // and then there is no goroutine
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.running && w.armed == 0
	})
}

func wait(t *testing.T, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came")
		}
	}
}

func TestNeverEarly(t *testing.T) {
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
	w := New(time.Millisecond, timerOf, func(x *thing) { x.fired.Add(1) })
	a, b := &thing{}, &thing{}
	w.Set(a, time.Hour)
	w.Set(b, time.Hour)
	w.Close()
	w.Close()
	if w.Stop(a) || w.Stop(b) || w.Set(a, 0) || w.Stop(a) {
		t.Error("something is armed after Close")
	}
}

// A long deadline takes many rounds.
func TestRounds(t *testing.T) {
	w := New(50*time.Microsecond, timerOf, func(x *thing) { x.fired.Store(1) })
	x := &thing{}
	from := w.Now()
	w.Set(x, 3*slots*50*time.Microsecond)
	wait(t, func() bool { return x.fired.Load() == 1 })
	if n := w.Now() - from; n < 3*slots {
		t.Errorf("fired after %d ticks", n)
	}
}

func BenchmarkSetStop(b *testing.B) {
	w := New(time.Second, timerOf, func(*thing) {})
	defer w.Close()
	x := &thing{}
	b.ReportAllocs()
	for b.Loop() {
		w.Set(x, time.Minute)
		w.Stop(x)
	}
}
