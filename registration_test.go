package socknotify

import (
	"errors"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// An entry is sound exactly where nothing is wrong with it.
func TestEnables(t *testing.T) {
	sound := 0
	for _, op := range []Op{OpNone, OpEnable, OpDisable, OpRemove, OpEnable | OpDisable, 0x80} {
		for trigger := range 256 {
			for _, filter := range []Events{EventNone, EventIn, EventsAll, EventErr, EventIn | EventRemove, 1 << 31} {
				r := Registration[int]{Op: op, Trigger: Trigger(trigger), Filter: filter}
				var e port.Entry
				r.entry(&e)
				got, err := op == OpEnable && port.Sound(e.Filter, e.Trigger), e.Check()
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

// A nil socket of package sock is none: not that of handle 0.
func TestNilSock(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], _ *hooked) {
		var none *sock.Socket
		regs := []Registration[string]{
			Enable(none, "key", EventIn, TriggerLevel), Disable[string](none), Remove[string](none),
		}
		if _, err := p.Process(regs, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, r := range regs {
			var e *OpError
			if !errors.As(r.Result, &e) || e.Op != r.Op || e.Handle != port.NoSocket || e.Kind != ErrBadSocket {
				t.Errorf("%v of a nil socket: %v", r.Op, r.Result)
			}
		}
		regs = []Registration[string]{Enable(nil, "key", EventIn, TriggerLevel), Disable[string](nil), {Op: OpRemove}, {}}
		if _, err := p.Process(regs, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, r := range regs[:3] {
			if !errors.Is(r.Result, ErrInvalid) || !strings.Contains(r.Result.Error(), "Conn") {
				t.Errorf("%v without Conn and Handle: %v", r.Op, r.Result)
			}
		}
		if regs[3].Result != nil {
			t.Errorf("OpNone without Conn and Handle: %v", regs[3].Result)
		}
	})
}
