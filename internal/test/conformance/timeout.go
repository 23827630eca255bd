package conformance

import (
	"time"

	"github.com/socknotify/socknotify"
)

// C4: how long a call waits.
var timeoutCases = map[string]func(*env){
	"C4/NeverEarlyUnderWakeups": neverEarlyUnderWakeups,
}

func (e *env) notEarly(r result, timeout time.Duration) {
	e.Helper()
	if len(r.notes) != 0 {
		e.Errorf("Wait = %v", r.notes)
	}
	e.wantErr(r.err, socknotify.ErrTimeout)
	if r.took < timeout {
		e.Errorf("waited %v, less than the %v asked for", r.took, timeout)
	}
}

// neverEarlyUnderWakeups makes the kernel report things that make no notification.
func neverEarlyUnderWakeups(e *env) {
	const timeout = 20 * time.Millisecond
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge), disable(s))
	other, _ := e.unix()
	first, second := e.wait(p, 1, timeout), e.wait(p, 1, timeout)
	for range 10 {
		e.send(peer, "x")
		e.do(p, enable(other, "other", in, level), remove(other))
		var removal [1]note
		p.Process(nil, removal[:], 0)
		e.do(p, enable(s, "k", socknotify.EventNone, edge), disable(s))
		time.Sleep(time.Millisecond)
	}
	for _, ch := range []<-chan result{first, second} {
		r := e.get(ch)
		if len(r.notes) == 0 { // it may have taken a removal
			e.notEarly(r, timeout)
		}
	}
}
