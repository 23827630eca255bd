package kqueue

import (
	"fmt"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

const number = 5

var mine, other = new(socket), new(socket)

func onBoth(t *testing.T, f func(t *testing.T, m *model)) {
	for _, lazy := range []bool{false, true} {
		t.Run(fmt.Sprintf("lazy=%v", lazy), func(t *testing.T) {
			m := newModel()
			m.lazy = lazy
			m.sockets[number] = mine
			f(t, m)
		})
	}
}

func (m *model) pair() (r, w *knote) {
	return m.knotes[[2]int{number, int(reads)}], m.knotes[[2]int{number, int(writes)}]
}

var interests = map[string]backend.Mask{"none": forNone, "in": forIn, "out": forOut, "both": forBoth}

// After every change both knotes exist, those that the interest needs are enabled and were polled, and the
// reading one has its parameters.
func TestChangesLeave(t *testing.T) {
	onBoth(t, func(t *testing.T, m *model) {
		check := func(what string, interest backend.Mask, suppressed bool) {
			t.Helper()
			r, w := m.pair()
			if r == nil || w == nil {
				t.Fatalf("%s: knotes %v, %v", what, r, w)
			}
			if r.enabled == suppressed || w.enabled != (interest&out != 0 && !suppressed) {
				t.Errorf("%s: reading %v, writing %v", what, r.enabled, w.enabled)
			}
			if low := r.fflags == noteLowat && r.data == tooMuch; !suppressed && low != (interest&in == 0) {
				t.Errorf("%s: low-water mark %v", what, low)
			}
			if !suppressed && r.polls == 0 || w.enabled && w.polls == 0 {
				t.Errorf("%s: not polled: %+v, %+v", what, r, w)
			}
			r.polls, w.polls = 0, 0
		}
		submit := func(what string, list []kevent) {
			t.Helper()
			if got := m.submit(list); len(got) != 0 {
				t.Fatalf("%s: %+v", what, got)
			}
		}
		for was, first := range interests {
			for is, second := range interests {
				submit("Add", steps(nil, backend.Add, number, first))
				check("Add "+was, first, false)
				submit("Set", steps(nil, backend.Set, number, second))
				check("Set "+was+"→"+is, second, false)
				submit("probe", probe(nil, number, second&out != 0))
				if r, w := m.pair(); !r.enabled || w.enabled != (second&out != 0) || r.fflags == 0 != (second&in != 0) {
					t.Errorf("probe changed %s: %+v, %+v", is, r, w)
				}
				submit("Suppress", steps(nil, backend.Suppress, number, 0))
				check("Suppress "+is, second, true)
				submit("Set", steps(nil, backend.Set, number, first))
				check("Suppress→Set "+was, first, false)
				submit("Delete", steps(nil, backend.Delete, number, 0))
				if len(m.knotes) != 0 {
					t.Fatalf("Delete left %v", m.knotes)
				}
			}
		}
	})
}

// If a number is closed, or closed and used again, between any two steps, the change fails or was complete
// before, and its effect on the other socket can be undone.
func TestClosedBetweenSteps(t *testing.T) {
	onBoth(t, func(t *testing.T, m *model) {
		for _, action := range []backend.Action{backend.Add, backend.Set, backend.Suppress, backend.Delete} {
			for name, interest := range interests {
				for _, again := range []bool{false, true} {
					list := steps(nil, action, number, interest)
					if len(list) > mostSteps {
						t.Fatalf("%d steps", len(list))
					}
					for at := range list {
						m.before = nil
						m.reuse(number, mine)
						if action != backend.Add {
							m.submit(steps(nil, backend.Add, number, forBoth))
						}
						m.before = func(step int) {
							switch {
							case step != at:
							case again:
								m.reuse(number, other)
							default:
								m.closed(number)
							}
						}
						var errs [1]int64
						blame([]int{number}, m.submit(list), errs[:])
						m.before = nil
						what := fmt.Sprintf("action %d %s, again=%v, before step %d", action, name, again, at)
						if errs[0] == 0 && !(action == backend.Add && at == 0 && again) {
							t.Errorf("%s: no error; knotes %v", what, m.knotes)
						}
						m.submit(remove(nil, number))
						if len(m.knotes) != 0 {
							t.Errorf("%s: left %v", what, m.knotes)
						}
					}
				}
			}
		}
	})
}

// The first error of a change distinguishes a number that was used again before from one that was closed.
func TestGoneBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, m *model) {
		for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
			for _, c := range []struct {
				open bool
				want int64
			}{{true, noEnt}, {false, badF}} {
				m.reuse(number, mine)
				m.submit(steps(nil, backend.Add, number, forIn))
				if m.closed(number); c.open {
					m.reuse(number, other)
				}
				for _, list := range [][]kevent{steps(nil, action, number, forBoth), probe(nil, number, true), probe(nil, number, false)} {
					var errs [1]int64
					if blame([]int{number}, m.submit(list), errs[:]); errs[0] != c.want {
						t.Errorf("action %d, open %v: error %d; want %d", action, c.open, errs[0], c.want)
					}
					m.submit(remove(nil, number))
				}
			}
		}
	})
}

func TestBlame(t *testing.T) {
	k := func(fd int, e int64) kevent { return kevent{fd: fd, flags: evError, data: e} }
	for _, c := range []struct {
		returned []kevent
		want     [3]int64
	}{
		{nil, [3]int64{}},
		{[]kevent{k(7, 0)}, [3]int64{}},                           // a receipt
		{[]kevent{k(7, 0), k(7, 9), k(7, 2)}, [3]int64{9, 0, 0}},  // the first error counts
		{[]kevent{k(7, 0), k(3, 2), k(3, 12)}, [3]int64{0, 2, 0}}, //
		{[]kevent{k(3, 2), k(8, 9)}, [3]int64{0, 2, 9}},           //
		{[]kevent{k(8, 22), k(40, 2)}, [3]int64{0, 0, 22}},        // the last is the step that always fails
		{[]kevent{k(40, 2)}, [3]int64{}},                          //
		{[]kevent{k(7, 1), k(3, 2), k(8, 3), k(40, 2)}, [3]int64{1, 2, 3}},
	} {
		errs := [3]int64{55, 55, 55}
		if blame([]int{7, 3, 8}, c.returned, errs[:]); errs != c.want {
			t.Errorf("%+v: %v; want %v", c.returned, errs, c.want)
		}
	}
}
