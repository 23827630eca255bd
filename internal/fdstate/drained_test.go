package fdstate

import "testing"

// A fd has been drained in a direction if a call that began after the latest notification would have
// blocked, and nothing stands.
func TestDrained(t *testing.T) {
	for _, c := range []struct {
		name string
		// n: notified, d: in vain; k: which may keep on; e: of what stands; b: of both. t: a call begins;
		// r, s: it would have blocked. R, S: a whole call that would have.
		steps string
		want  Dir
	}{
		{"nothing", "", 0},
		{"never notified", "R", Recv},
		{"never notified, both", "RS", Recv | Send},
		{"notified", "n", 0},
		{"drained", "nR", Recv},
		{"drained of the other", "nS", Send},
		{"both", "nRS", Recv | Send},
		{"drained twice", "nRR", Recv},
		{"drained before", "Rn", 0},
		{"drained before and after", "RnR", Recv},
		{"each its own turn", "nRnS", Send},
		{"began before, ended before", "trn", 0},
		{"began before, ended after", "tnr", 0},
		{"began two turns before", "tnnr", 0},
		{"began before the last of two", "ntnr", 0},
		{"began before, after one that counts", "tnRr", 0},
		{"one that counts after that", "tnrR", Recv},
		{"sends as well", "tns", 0},
		{"sends that count", "tnsS", Send},
		{"what may keep on is drained by would-block", "kR", Recv},
		{"something stands", "eRS", 0},
		{"and still does", "eRRSS", 0},
		{"and no more", "enR", Recv},
		{"keeps on and stands", "bRS", 0},
		{"stood after", "nRSe", 0},
		{"a notification in vain", "nRd", 0},
		{"drained after one in vain", "ndR", Recv},
		{"in vain, and something stands", "edR", 0},
		{"in vain, and nothing stands any more", "ednR", Recv},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x FD
			var turn uint64
			for _, s := range c.steps {
				switch s {
				case 'n':
					x.Notified(x.Notify(false, false))
				case 'k':
					x.Notified(x.Notify(true, false))
				case 'e':
					x.Notified(x.Notify(false, true))
				case 'b':
					x.Notified(x.Notify(true, true))
				case 'd':
					x.Notify(false, false) // others were quicker
				case 't':
					turn = x.Turn()
				case 'r':
					x.Blocked(Recv, turn)
				case 's':
					x.Blocked(Send, turn)
				case 'R':
					x.Blocked(Recv, x.Turn())
				case 'S':
					x.Blocked(Send, x.Turn())
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

// A short receive says that a stream is drained unless its notification says why it may be short.
func TestShortBlocks(t *testing.T) {
	var x FD
	for i, c := range []struct{ keepsOn, stands, want bool }{
		{false, false, true}, {true, false, false}, {false, false, true},
		{true, true, false}, {false, true, true}, {true, false, false},
	} {
		before := x.Turn()
		x.Notified(x.Notify(c.keepsOn, c.stands))
		if got := ShortBlocks(x.Turn()); got != c.want {
			t.Errorf("%d: ShortBlocks = %v after keepsOn %v, stands %v", i, got, c.keepsOn, c.stands)
		}
		if x.Turn() == before {
			t.Errorf("%d: the turn is the same", i)
		}
	}
	if !ShortBlocks(new(FD).Turn()) {
		t.Error("a socket that no port knows")
	}
}

// A turn that has begun, but whose notification may yet turn out not to be delivered, keeps what the one
// before said: that may be the one that is.
func TestNotifyNotDelivered(t *testing.T) {
	for _, c := range []struct {
		name string
		// N, K, E: Notify of nothing, of what may keep on, of what keeps on and stands; c: the latest is
		// certain; l: the one before that; R: a receive would have blocked
		steps          string
		short, drained bool
	}{
		{"not certain", "N", true, false},
		{"it may keep on", "K", false, false},
		{"it did before", "KN", false, false},
		{"and not if that is certain", "KNc", true, false},
		{"two of them", "KNN", false, false},
		{"two of them, the latter certain", "KNNc", true, false},
		{"it stood before", "ENR", false, false},
		{"and not if that is certain, drained", "ENcR", true, true},
		{"drained before it is certain", "ENRc", true, false},
		{"drained before, of nothing else", "NRc", true, true},
		{"the former of two is certain too late", "KNNl", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x FD
			var notices []Notice
			for _, s := range c.steps {
				switch s {
				case 'N':
					notices = append(notices, x.Notify(false, false))
				case 'K':
					notices = append(notices, x.Notify(true, false))
				case 'E':
					notices = append(notices, x.Notify(true, true))
				case 'c':
					x.Notified(notices[len(notices)-1])
				case 'l':
					x.Notified(notices[len(notices)-2])
				case 'R':
					x.Blocked(Recv, x.Turn())
				}
			}
			if short, drained := ShortBlocks(x.Turn()), x.Drained(Recv); short != c.short || drained != c.drained {
				t.Errorf("short receives tell: %v, drained: %v", short, drained)
			}
		})
	}
}
