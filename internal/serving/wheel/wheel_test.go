package wheel

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type item struct {
	timer Timer[*item]
	id    int
	fired atomic.Int64
}

func timerOf(x *item) *Timer[*item] { return &x.timer }

// idle is a clock whose timers never expire: the test calls advance.
type idle struct{ clock.Clock }

func (idle) AfterFunc(d time.Duration, f func()) clock.Timer { return testclock.New().AfterFunc(d, f) }

// A wheel that the test advances behaves like a list of deadlines.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var fired []int
		again := map[int]time.Duration{} // the durations that fire sets again
		due := map[int]uint64{}
		var w *Wheel[*item]
		w = New(idle{}, time.Second, timerOf, func(x *item) {
			fired = append(fired, x.id)
			if d, ok := again[x.id]; ok {
				w.Set(x, d)
			}
		})
		things := make([]*item, 8)
		for i := range things {
			things[i] = &item{id: i}
		}
		// Durations around the ends of the first revolutions, and any others.
		wait := rapid.OneOf(rapid.Int64Range(-1, 4), rapid.Int64Range(slotCount-3, slotCount+3), rapid.Int64Range(0, 3*slotCount))
		deadline := func(d time.Duration) uint64 {
			return w.Now() + 1 + uint64(max(0, (d+time.Second-1)/time.Second))
		}
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
					on := w.advance()
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
	w := New(idle{}, time.Second, timerOf, func(x *item) { fired = append(fired, x.id) })
	long, short := &item{id: 1}, &item{id: 2}
	w.Set(long, math.MaxInt64)
	w.Set(short, 0)
	w.Hasten(short, math.MaxInt64)
	for range 2 * slotCount {
		w.advance()
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

// With concurrent use, each armed timer either fires once or is stopped once. When none is armed, the
// wheel's own timer stops.
func TestConcurrentUse(t *testing.T) {
	const tick = time.Millisecond
	var fires, arms, stops atomic.Int64
	c := testclock.New()
	w := New(c, tick, timerOf, func(x *item) { fires.Add(1) })
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
				switch rng.IntN(16) {
				case 0, 1, 2, 3:
					if w.Stop(x) {
						stops.Add(1)
					}
				case 4:
					c.Advance(tick)
				default:
					if !w.Set(x, time.Duration(rng.IntN(5))*tick) {
						arms.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	c.Advance(10 * tick)
	if arms, ended := arms.Load(), fires.Load()+stops.Load(); arms != ended || fires.Load() == 0 {
		t.Errorf("%d armed, %d fired or stopped, %d of them fired", arms, ended, fires.Load())
	}
	if n := c.Timers(); n != 0 {
		t.Errorf("%d timers of the clock are armed", n)
	}
}

// A timer fires in the two ticks after its duration, also one of several revolutions of the wheel.
func TestDuration(t *testing.T) {
	const tick = 2 * time.Millisecond
	c := testclock.New()
	w := New(c, tick, timerOf, func(x *item) { x.fired.Add(1) })
	for _, d := range []time.Duration{0, 1, tick - 1, tick, tick + 1, 5 * tick, 3 * slotCount * tick} {
		x := &item{}
		w.Set(x, d)
		if c.Advance(max(d, 1) - 1); x.fired.Load() != 0 {
			t.Errorf("set to %v, fired early", d)
		}
		if c.Advance(2*tick + 1); x.fired.Load() != 1 {
			t.Errorf("set to %v, fired %d times after %v", d, x.fired.Load(), d+2*tick)
		}
	}
}

// On the system's clock a timer fires too.
func TestSystemClock(t *testing.T) {
	fired := make(chan *item)
	w := New(clock.Current(), time.Millisecond, timerOf, func(x *item) { fired <- x })
	defer w.Close()
	x := &item{}
	for range 3 { // the wheel's own timer stops and starts
		if w.Set(x, time.Millisecond); <-fired != x {
			t.Error("another timer fired")
		}
	}
}

func TestClose(t *testing.T) {
	w := New(clock.Current(), time.Millisecond, timerOf, func(x *item) { x.fired.Add(1) })
	a, b := &item{}, &item{}
	w.Set(a, time.Hour)
	w.Set(b, time.Hour)
	w.Close()
	w.Close()
	if w.Stop(a) || w.Stop(b) || w.Set(a, 0) || w.Stop(a) {
		t.Error("a timer is armed after Close")
	}
}

func BenchmarkSetStop(b *testing.B) {
	w := New(clock.Current(), time.Second, timerOf, func(*item) {})
	defer w.Close()
	x := &item{}
	b.ReportAllocs()
	for b.Loop() {
		w.Set(x, time.Minute)
		w.Stop(x)
	}
}
