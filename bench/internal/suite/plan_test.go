package suite

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// planned returns an Env with the plan of a workload that has a main set and two others, a contender and a reference.
func planned(t *testing.T, within time.Duration) (*Env, *Workload) {
	t.Helper()
	e := env(t)
	e.Rounds, e.Window, e.Within = 9, time.Second, within
	w := &Workload{Name: "register", reference: []string{"go-epoll"}, sets: func() []Set {
		return []Set{{param.Params{Size: 1}, 1}, {param.Params{Size: 2}, side}, {param.Params{Size: 3}, once}}
	}}
	e.Plan(t.Context(), []*Workload{w})
	return e, w
}

// The time of a run is the sum of its samples, and decreases as they are taken.
func TestPlan(t *testing.T) {
	e, w := planned(t, 0)
	var samples int
	for i, want := range []int{9, 3, 1} {
		j := e.plan.jobs[i]
		if n := e.rounds(j.set, 1); n != want {
			t.Errorf("%d rounds of %v, want %d", n, j.set, want)
		}
		samples += want * j.samples
	}
	all := e.Left()
	if least := time.Duration(samples) * e.Window; all < least || all > least*5/4 {
		t.Errorf("%d samples take %v", samples, all)
	}
	if n := e.begin(w, w.sets()[0]); n != 9 {
		t.Errorf("%d rounds", n)
	}
	before := e.Left()
	if math.Abs(float64(before-all)) > float64(time.Millisecond) {
		t.Errorf("%v as the first set begins, and %v before", before, all)
	}
	for range e.plan.samples / 2 {
		e.plan.sampled()
	}
	if now := e.Left(); now > before*3/4 {
		t.Errorf("%v after half of the main set, %v before", now, before)
	}
	e.plan.now = time.Now().Add(-2 * e.plan.cost) // it took twice as long as expected
	cost := e.plan.cost
	e.plan.end()
	if left := e.Left(); math.Abs(float64(left)/float64(2*(all-cost))-1) > .01 {
		t.Errorf("%v left at half the pace, of %v", left, all-cost)
	}
}

// If time is short the main set has all its rounds, and the others at least one.
func TestWithin(t *testing.T) {
	for _, tt := range []struct {
		within time.Duration
		want   [3]int
		late   bool
	}{{time.Hour, [3]int{9, 3, 1}, false}, {time.Second, [3]int{9, 1, 1}, true}} {
		for i, want := range tt.want {
			e, w := planned(t, tt.within)
			if e.plan.late() != tt.late {
				t.Errorf("late within %v: %v", tt.within, !tt.late)
			}
			set := w.sets()[i]
			if n := e.begin(w, set); n != want {
				t.Errorf("within %v: %d rounds of %v, want %d", tt.within, n, set, want)
			}
		}
	}
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := Progress{W: &b}
	p.say("first", 90*time.Second)
	p.say("second", time.Hour)
	if got := b.String(); got != "first; about 90 s left\n" {
		t.Errorf("%q", got)
	}
	b.Reset()
	p = Progress{W: &b, Terminal: true}
	p.say("first", 0)
	p.say("second", time.Hour)
	p.Clear()
	if got := b.String(); strings.Count(got, "\r\x1b[K") != 3 || !strings.Contains(got, "second; about 60 min left") {
		t.Errorf("%q", got)
	}
	(&Progress{}).say("nothing", 0)
}
