package socknotify_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// A nil socket of package sock is none: not that of handle 0.
func TestNilSock(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], _ *porttest.Hooked) {
		var none *sock.Socket
		regs := []Registration[string]{
			Enable(none, "key", EventIn, TriggerLevel), Disable[string](none), Remove[string](none),
		}
		if _, err := p.Process(regs, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, r := range regs {
			var e *OpError
			if !errors.As(r.Result, &e) || e.Op != r.Op || e.Handle != ^uintptr(0) || e.Kind != ErrBadSocket {
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
