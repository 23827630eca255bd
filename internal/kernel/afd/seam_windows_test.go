package afd

import (
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel"
)

func TestStatus(t *testing.T) {
	p := open(t)
	a, _ := pair(t)
	for i, s := range []struct {
		action kernel.Action
		want   kernel.Status
	}{
		{kernel.Set, kernel.Absent}, {kernel.Mute, kernel.Absent}, {kernel.Delete, kernel.Absent},
		{kernel.Add, kernel.Done}, {kernel.Add, kernel.Present}, {kernel.Set, kernel.Done},
		{kernel.Mute, kernel.Done}, {kernel.Delete, kernel.Done}, {kernel.Delete, kernel.Absent},
	} {
		got, err := change(p, s.action, a, 1, in)
		if got != s.want || (err == nil) != (got == kernel.Done) {
			t.Fatalf("step %d: action %d: status %d, %v; want %d", i, s.action, got, err, s.want)
		}
	}
	for _, s := range []socket{0, windows.InvalidHandle, 1 << 30, p.port} {
		for _, action := range []kernel.Action{kernel.Add, kernel.Set, kernel.Mute, kernel.Delete} {
			if got, err := change(p, action, s, 1, in); got != kernel.Bad || err != windows.WSAENOTSOCK {
				t.Fatalf("handle %#x, action %d: status %d, %v; want Bad", s, action, got, err)
			}
		}
	}
}

func TestHas(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, kernel.Add, a, 1, in)
	for s, want := range map[socket]bool{a: true, b: false} {
		if has, err := p.Has(uintptr(s)); has != want || err != nil {
			t.Fatalf("Has = %v, %v; want %v", has, err, want)
		}
	}
	if has, err := p.Has(1 << 30); has || err != windows.WSAENOTSOCK {
		t.Fatalf("of no socket: Has = %v, %v", has, err)
	}
	// Asking changes nothing.
	write(t, a)
	write(t, b)
	expect(t, p, 1, kernel.In)
	none(t, p)
}

func TestDescribe(t *testing.T) {
	p := open(t)
	l, _ := listener(t)
	for s, want := range map[socket]kernel.Kind{
		l: kernel.Listener, newSocket(t, windows.SOCK_STREAM): kernel.Stream, newSocket(t, windows.SOCK_DGRAM): kernel.Datagram,
	} {
		if kind, err := p.Describe(uintptr(s)); kind != want || err != nil {
			t.Errorf("kind %d, %v; want %d", kind, err, want)
		}
	}
	for _, s := range []socket{windows.InvalidHandle, 1 << 30, p.port} {
		if _, err := p.Describe(uintptr(s)); err != windows.WSAENOTSOCK {
			t.Errorf("handle %#x: %v", s, err)
		}
	}
}

func TestSetLooksAgain(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, kernel.Add, a, 1, in)
	write(t, b)
	for token := uint64(1); token < 5; token++ {
		expect(t, p, token, kernel.In)
		none(t, p) // a report silences
		apply(t, p, kernel.Set, a, token+1, in)
	}
	apply(t, p, kernel.Mute, a, 9, 0)
	none(t, p)
	apply(t, p, kernel.Set, a, 10, in)
	expect(t, p, 10, kernel.In)
	read(a)
	apply(t, p, kernel.Set, a, 11, in)
	none(t, p)
	write(t, b)
	expect(t, p, 11, kernel.In)
}

// What a poll found before a Set may be over.
func TestSetForgetsWhatWasFound(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, kernel.Add, a, 1, in)
	for token := uint64(2); token < 10; token++ {
		write(t, b)
		eventually(t, "the byte", func() bool { return p.Look(uintptr(a))&kernel.In != 0 })
		read(a)
		apply(t, p, kernel.Set, a, token, in)
		none(t, p)
	}
	write(t, b)
	expect(t, p, 9, kernel.In)
}

// What holds is there to be harvested when Set returns, whatever poll stood before.
func TestSetIsNotDelayed(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	now := func(token uint64, want kernel.Mask) {
		t.Helper()
		if r := harvest(p); len(r) != 1 || r[0] != (kernel.Ready{Token: token, Mask: want}) {
			t.Fatalf("reports %+v; want %d with %#x", r, token, want)
		}
	}
	for range 20 {
		apply(t, p, kernel.Add, a, 1, in)
		apply(t, p, kernel.Set, a, 2, kernel.Out)
		now(2, kernel.Out)
		write(t, b)
		eventually(t, "the byte", func() bool { return p.Look(uintptr(a))&kernel.In != 0 })
		apply(t, p, kernel.Set, a, 3, in)
		apply(t, p, kernel.Set, a, 4, in) // of what has been found already
		now(4, kernel.In)
		apply(t, p, kernel.Set, a, 5, in)
		apply(t, p, kernel.Mute, a, 5, 0)
		apply(t, p, kernel.Set, a, 6, in|kernel.Out)
		now(6, kernel.In|kernel.Out)
		read(a)
		apply(t, p, kernel.Delete, a, 0, 0)
	}
}

// A report tells what holds when it is harvested, whatever the poll found when it completed.
func TestReportIsOfNow(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	arrived := func(m kernel.Mask) {
		eventually(t, "the byte", func() bool { return p.Look(uintptr(a))&m == m })
	}
	for _, held := range []bool{false, true} {
		found := func() {
			if held {
				park(t, p, time.Time{}, sleepOn)
			}
		}
		apply(t, p, kernel.Add, a, 1, in|kernel.Out)
		found()
		write(t, b)
		arrived(kernel.In)
		expect(t, p, 1, kernel.In|kernel.Out)
		apply(t, p, kernel.Set, a, 2, in)
		found()
		read(a)
		none(t, p)
		write(t, b) // it goes on looking
		expect(t, p, 2, kernel.In)
		read(a)
		apply(t, p, kernel.Delete, a, 0, 0)
	}
}

// Interest grows and shrinks while a poll stands.
func TestSetOfAnotherInterest(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, kernel.Add, a, 1, in)
	for token := uint64(2); token < 20; token += 4 {
		apply(t, p, kernel.Set, a, token, kernel.Out)
		expect(t, p, token, kernel.Out)
		apply(t, p, kernel.Set, a, token+1, in)
		none(t, p)
		apply(t, p, kernel.Set, a, token+2, kernel.PeerClosed)
		none(t, p)
		write(t, b)
		none(t, p)
		apply(t, p, kernel.Set, a, token+3, in)
		expect(t, p, token+3, kernel.In)
		read(a)
		apply(t, p, kernel.Set, a, token+3, in)
	}
}

func TestSetGrowsUnderParked(t *testing.T) {
	p := open(t)
	a, _ := pair(t)
	for token := uint64(1); token < 50; token++ {
		apply(t, p, kernel.Add, a, token, in)
		park(t, p, time.Time{}, func() bool {
			go change(p, kernel.Set, a, token+1, kernel.Out)
			return false
		})
		expect(t, p, token+1, kernel.Out)
		apply(t, p, kernel.Delete, a, 0, 0)
	}
}

func TestDeleteDropsWhatWasFound(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	write(t, b)
	for range 20 {
		apply(t, p, kernel.Add, a, 1, in)
		apply(t, p, kernel.Delete, a, 1, 0)
		none(t, p)
		apply(t, p, kernel.Add, a, 1, in)
		park(t, p, time.Time{}, sleepOn) // holds the report
		apply(t, p, kernel.Delete, a, 1, 0)
		none(t, p)
	}
}

// Changes are made in order, and one that fails harms no other.
func TestOrder(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	c := []kernel.Change{
		{Handle: uintptr(a), Token: 1, Interest: in, Action: kernel.Add},
		{Handle: 1 << 30, Token: 2, Interest: in, Action: kernel.Add},
		{Handle: uintptr(a), Token: 3, Interest: kernel.Out, Action: kernel.Set},
		{Handle: uintptr(b), Token: 4, Interest: in, Action: kernel.Set},
		{Handle: uintptr(b), Token: 5, Interest: kernel.Out, Action: kernel.Add},
	}
	ready := make([]kernel.Ready, 8)
	seen := map[uint64]bool{}
	for i := range ready[:p.Poll(c, ready)] {
		seen[ready[i].Token] = true
	}
	for i, want := range []kernel.Status{kernel.Done, kernel.Bad, kernel.Done, kernel.Absent, kernel.Done} {
		if c[i].Status != want {
			t.Errorf("change %d: status %d, %v; want %d", i, c[i].Status, c[i].Err, want)
		}
	}
	for len(seen) < 2 {
		seen[await(t, p).Token] = true
	}
	if !seen[3] || !seen[5] {
		t.Errorf("reports %v; want 3 and 5", seen)
	}
}
