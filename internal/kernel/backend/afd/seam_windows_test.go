package afd

import (
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

func TestStatus(t *testing.T) {
	p := open(t)
	a, _ := pair(t)
	for i, s := range []struct {
		action backend.Action
		want   backend.Status
	}{
		{backend.Set, backend.Absent}, {backend.Suppress, backend.Absent}, {backend.Delete, backend.Absent},
		{backend.Add, backend.Done}, {backend.Add, backend.Present}, {backend.Set, backend.Done},
		{backend.Suppress, backend.Done}, {backend.Delete, backend.Done}, {backend.Delete, backend.Absent},
	} {
		got, err := change(p, s.action, a, 1, in)
		if got != s.want || (err == nil) != (got == backend.Done) {
			t.Fatalf("step %d: action %d: status %d, %v; want %d", i, s.action, got, err, s.want)
		}
	}
	for _, s := range []socket{0, windows.InvalidHandle, 1 << 30, p.port} {
		for _, action := range []backend.Action{backend.Add, backend.Set, backend.Suppress, backend.Delete} {
			if got, err := change(p, action, s, 1, in); got != backend.Bad || err != windows.WSAENOTSOCK {
				t.Fatalf("handle %#x, action %d: status %d, %v; want Bad", s, action, got, err)
			}
		}
	}
}

func TestHas(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for s, want := range map[socket]bool{a: true, b: false} {
		if has, err := p.Has(uintptr(s)); has != want || err != nil {
			t.Fatalf("Has = %v, %v; want %v", has, err, want)
		}
	}
	if has, err := p.Has(1 << 30); has || err != windows.WSAENOTSOCK {
		t.Fatalf("of no socket: Has = %v, %v", has, err)
	}
	// Has changes nothing.
	write(t, a)
	write(t, b)
	expect(t, p, 1, backend.In)
	none(t, p)
}

func TestDescribe(t *testing.T) {
	p := open(t)
	l, _ := listener(t)
	for s, want := range map[socket]backend.Kind{
		l: backend.Listener, newSocket(t, windows.SOCK_STREAM): backend.Stream, newSocket(t, windows.SOCK_DGRAM): backend.Datagram,
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

func TestSetPolls(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	write(t, b)
	for token := uint64(1); token < 5; token++ {
		expect(t, p, token, backend.In)
		none(t, p) // a report suppresses
		apply(t, p, backend.Set, a, token+1, in)
	}
	apply(t, p, backend.Suppress, a, 9, 0)
	none(t, p)
	apply(t, p, backend.Set, a, 10, in)
	expect(t, p, 10, backend.In)
	read(a)
	apply(t, p, backend.Set, a, 11, in)
	none(t, p)
	write(t, b)
	expect(t, p, 11, backend.In)
}

// A condition that a poll found before a Set may have ended.
func TestSetDropsEarlierResult(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for token := uint64(2); token < 10; token++ {
		write(t, b)
		eventually(t, "the byte", func() bool { return p.PollOne(uintptr(a))&backend.In != 0 })
		read(a)
		apply(t, p, backend.Set, a, token, in)
		none(t, p)
	}
	write(t, b)
	expect(t, p, 9, backend.In)
}

// When Set returns, conditions that hold can be harvested, with any poll outstanding before.
func TestSetIsNotDelayed(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	now := func(token uint64, want backend.Mask) {
		t.Helper()
		if r := harvest(p); len(r) != 1 || r[0] != (backend.Ready{Token: token, Mask: want}) {
			t.Fatalf("reports %+v; want %d with %#x", r, token, want)
		}
	}
	for range 20 {
		apply(t, p, backend.Add, a, 1, in)
		apply(t, p, backend.Set, a, 2, backend.Out)
		now(2, backend.Out)
		write(t, b)
		eventually(t, "the byte", func() bool { return p.PollOne(uintptr(a))&backend.In != 0 })
		apply(t, p, backend.Set, a, 3, in)
		apply(t, p, backend.Set, a, 4, in) // of a condition that the poll has found already
		now(4, backend.In)
		apply(t, p, backend.Set, a, 5, in)
		apply(t, p, backend.Suppress, a, 5, 0)
		apply(t, p, backend.Set, a, 6, in|backend.Out)
		now(6, backend.In|backend.Out)
		read(a)
		apply(t, p, backend.Delete, a, 0, 0)
	}
}

// A report has the conditions that hold when it is harvested, not those that the completed poll found.
func TestReportIsCurrent(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	arrived := func(m backend.Mask) {
		eventually(t, "the byte", func() bool { return p.PollOne(uintptr(a))&m == m })
	}
	for _, held := range []bool{false, true} {
		found := func() {
			if held {
				park(t, p, time.Time{}, sleepOn)
			}
		}
		apply(t, p, backend.Add, a, 1, in|backend.Out)
		found()
		write(t, b)
		arrived(backend.In)
		expect(t, p, 1, backend.In|backend.Out)
		apply(t, p, backend.Set, a, 2, in)
		found()
		read(a)
		none(t, p)
		write(t, b) // the socket is still watched
		expect(t, p, 2, backend.In)
		read(a)
		apply(t, p, backend.Delete, a, 0, 0)
	}
}

// The interest grows and shrinks while a poll is outstanding.
func TestSetOfAnotherInterest(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	for token := uint64(2); token < 20; token += 4 {
		apply(t, p, backend.Set, a, token, backend.Out)
		expect(t, p, token, backend.Out)
		apply(t, p, backend.Set, a, token+1, in)
		none(t, p)
		apply(t, p, backend.Set, a, token+2, backend.PeerClosed)
		none(t, p)
		write(t, b)
		none(t, p)
		apply(t, p, backend.Set, a, token+3, in)
		expect(t, p, token+3, backend.In)
		read(a)
		apply(t, p, backend.Set, a, token+3, in)
	}
}

func TestSetGrowsUnderParked(t *testing.T) {
	p := open(t)
	a, _ := pair(t)
	for token := uint64(1); token < 50; token++ {
		apply(t, p, backend.Add, a, token, in)
		park(t, p, time.Time{}, func() bool {
			go change(p, backend.Set, a, token+1, backend.Out)
			return false
		})
		expect(t, p, token+1, backend.Out)
		apply(t, p, backend.Delete, a, 0, 0)
	}
}

func TestDeleteDropsEarlierResult(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	write(t, b)
	for range 20 {
		apply(t, p, backend.Add, a, 1, in)
		apply(t, p, backend.Delete, a, 1, 0)
		none(t, p)
		apply(t, p, backend.Add, a, 1, in)
		park(t, p, time.Time{}, sleepOn) // holds the report
		apply(t, p, backend.Delete, a, 1, 0)
		none(t, p)
	}
}

// Changes are made in order, and one that fails does not affect the others.
func TestOrder(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	c := []backend.Change{
		{Handle: uintptr(a), Token: 1, Interest: in, Action: backend.Add},
		{Handle: 1 << 30, Token: 2, Interest: in, Action: backend.Add},
		{Handle: uintptr(a), Token: 3, Interest: backend.Out, Action: backend.Set},
		{Handle: uintptr(b), Token: 4, Interest: in, Action: backend.Set},
		{Handle: uintptr(b), Token: 5, Interest: backend.Out, Action: backend.Add},
	}
	ready := make([]backend.Ready, 8)
	seen := map[uint64]bool{}
	for i := range ready[:p.Poll(c, ready)] {
		seen[ready[i].Token] = true
	}
	for i, want := range []backend.Status{backend.Done, backend.Bad, backend.Done, backend.Absent, backend.Done} {
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
