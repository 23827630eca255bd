package fdstate

import "testing"

// An FD is drained in a direction if a call that began after the latest notification would have blocked, and no
// persistent condition holds.
func TestDrained(t *testing.T) {
	for _, c := range []struct {
		name string
		// n: Advance and Confirm; k: with shortUnreliable; e: with persists; b: with both. d: Advance without
		// Confirm. t: a call begins; r, s: that call would have blocked. R, S: a complete call that would have
		// blocked.
		steps string
		want  Dir
	}{
		{"nothing", "", 0},
		{"never notified", "R", Recv},
		{"never notified, both", "RS", Recv | Send},
		{"notified", "n", 0},
		{"drained", "nR", Recv},
		{"drained in the other direction", "nS", Send},
		{"both", "nRS", Recv | Send},
		{"drained twice", "nRR", Recv},
		{"drained before", "Rn", 0},
		{"drained before and after", "RnR", Recv},
		{"each direction in its own generation", "nRnS", Send},
		{"began before, ended before", "trn", 0},
		{"began before, ended after", "tnr", 0},
		{"began two generations before", "tnnr", 0},
		{"began before the last of two", "ntnr", 0},
		{"began before, ends after a valid one", "tnRr", 0},
		{"a valid one after that", "tnrR", Recv},
		{"sends as well", "tns", 0},
		{"valid sends", "tnsS", Send},
		{"ErrWouldBlock drains even if short receives do not", "kR", Recv},
		{"a condition persists", "eRS", 0},
		{"it still persists", "eRRSS", 0},
		{"it persists no more", "enR", Recv},
		{"short unreliable and persists", "bRS", 0},
		{"persists afterwards", "nRSe", 0},
		{"an unconfirmed notification", "nRd", 0},
		{"drained after an unconfirmed one", "ndR", Recv},
		{"unconfirmed, and a condition persists", "edR", 0},
		{"unconfirmed, and no condition persists any more", "ednR", Recv},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x FD
			var generation uint64
			for _, s := range c.steps {
				switch s {
				case 'n':
					x.Confirm(x.Advance(false, false))
				case 'k':
					x.Confirm(x.Advance(true, false))
				case 'e':
					x.Confirm(x.Advance(false, true))
				case 'b':
					x.Confirm(x.Advance(true, true))
				case 'd':
					x.Advance(false, false) // another notification is delivered
				case 't':
					generation = x.Generation()
				case 'r':
					x.Blocked(Recv, generation)
				case 's':
					x.Blocked(Send, generation)
				case 'R':
					x.Blocked(Recv, x.Generation())
				case 'S':
					x.Blocked(Send, x.Generation())
				}
			}
			for _, d := range []Dir{Recv, Send, Recv | Send} {
				if got := x.Drained(d); got != (c.want&d == d) {
					t.Errorf("Drained(%d) = %v", d, got)
				}
			}
		})
	}
}

// A short receive drains a stream unless the notification reports another reason for it.
func TestShortDrains(t *testing.T) {
	var x FD
	for i, c := range []struct{ keepsOn, stands, want bool }{
		{false, false, true}, {true, false, false}, {false, false, true},
		{true, true, false}, {false, true, true}, {true, false, false},
	} {
		before := x.Generation()
		x.Confirm(x.Advance(c.keepsOn, c.stands))
		if got := ShortDrains(x.Generation()); got != c.want {
			t.Errorf("%d: ShortBlocks = %v after keepsOn %v, stands %v", i, got, c.keepsOn, c.stands)
		}
		if x.Generation() == before {
			t.Errorf("%d: the generation is unchanged", i)
		}
	}
	if !ShortDrains(new(FD).Generation()) {
		t.Error("a short receive does not drain a socket without notifications")
	}
}

// A generation that is not confirmed keeps the flags of the one before, whose notification may be delivered instead.
func TestAdvanceWithoutConfirm(t *testing.T) {
	for _, c := range []struct {
		name string
		// N, K, E: Advance without flags, with shortUnreliable, with both; c: Confirm the latest; l:
		// Confirm the one before; R: a receive would have blocked
		steps          string
		short, drained bool
	}{
		{"not confirmed", "N", true, false},
		{"short unreliable", "K", false, false},
		{"short unreliable before", "KN", false, false},
		{"short unreliable before, confirmed", "KNc", true, false},
		{"two of them", "KNN", false, false},
		{"two of them, the latter confirmed", "KNNc", true, false},
		{"persisted before", "ENR", false, false},
		{"persisted before, confirmed, drained", "ENcR", true, true},
		{"drained before it is confirmed", "ENRc", true, false},
		{"drained before, no flags", "NRc", true, true},
		{"the former of two is confirmed too late", "KNNl", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x FD
			var steps []NewGeneration
			for _, s := range c.steps {
				switch s {
				case 'N':
					steps = append(steps, x.Advance(false, false))
				case 'K':
					steps = append(steps, x.Advance(true, false))
				case 'E':
					steps = append(steps, x.Advance(true, true))
				case 'c':
					x.Confirm(steps[len(steps)-1])
				case 'l':
					x.Confirm(steps[len(steps)-2])
				case 'R':
					x.Blocked(Recv, x.Generation())
				}
			}
			if short, drained := ShortDrains(x.Generation()), x.Drained(Recv); short != c.short || drained != c.drained {
				t.Errorf("short receives drain: %v, drained: %v", short, drained)
			}
		})
	}
}
