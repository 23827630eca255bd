package observe

import (
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

func TestAcceptorOutOfDescriptorsIsPaused(t *testing.T) {
	v := port.View{Record: &port.Record{Work: &port.Work{Accept: &port.Acceptor{}}}, Enabled: true}
	for paused, want := range map[bool]state{true: statePaused, false: stateAccepting} {
		v.Record.Work.Accept.Paused.Store(paused)
		if got := stateOf(v); got != want {
			t.Errorf("paused %t: state %d; want %d", paused, got, want)
		}
	}
}
