package port

import "testing"

func TestAcceptorOutOfDescriptorsIsPaused(t *testing.T) {
	r := &Record{Work: &Work{Accept: &Acceptor{}}}
	for paused, want := range map[bool]state{true: StatePaused, false: StateAccepting} {
		r.Work.Accept.Paused.Store(paused)
		if got := r.State(WRegistered | WEnabled | WAccept); got != want {
			t.Errorf("paused %t: state %d; want %d", paused, got, want)
		}
	}
}
