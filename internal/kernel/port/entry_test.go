package port

import "testing"

// An entry is sound exactly where nothing is wrong with it.
func TestEnables(t *testing.T) {
	count := 0
	for _, op := range []Op{OpNone, OpEnable, OpDisable, OpRemove, OpEnable | OpDisable, 0x80} {
		for trigger := range 256 {
			for _, filter := range []Events{EventNone, EventIn, EventsAll, EventErr, EventIn | EventRemove, 1 << 31} {
				e := Entry{Op: op, Trigger: Trigger(trigger), Filter: filter}
				ok, err := op == OpEnable && sound(e.Filter, e.Trigger), e.check()
				if want := op == OpEnable && err == nil; ok != want {
					t.Errorf("%v %v %v: sound %v, and %v", op, Trigger(trigger), filter, ok, err)
				}
				if ok {
					count++
				}
			}
		}
	}
	if want := 6 * 3; count != want { // level or edge, with one-shot, persistent or neither; three filters
		t.Errorf("%d entries are sound; want %d", count, want)
	}
}
