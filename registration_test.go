package socknotify

import "testing"

// An entry is sound exactly where nothing is wrong with it.
func TestEnables(t *testing.T) {
	sound := 0
	for _, op := range []Op{OpNone, OpEnable, OpDisable, OpRemove, OpEnable | OpDisable, 0x80} {
		for trigger := range 256 {
			for _, filter := range []Events{EventNone, EventIn, EventsAll, EventErr, EventIn | EventRemove, 1 << 31} {
				r := Registration[int]{Op: op, Trigger: Trigger(trigger), Filter: filter}
				got, err := r.enables(), r.check()
				if want := op == OpEnable && err == nil; got != want {
					t.Errorf("%v %v %v: sound %v, and %v", op, Trigger(trigger), filter, got, err)
				}
				if got {
					sound++
				}
			}
		}
	}
	if want := 6 * 3; sound != want { // level or edge, with one-shot, persistent or neither; three filters
		t.Errorf("%d entries are sound; want %d", sound, want)
	}
}
