//go:build unix

package system_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/test/await"
)

// onEach runs a test of backend.Poller on every backend, and on fakes of others.
func onEach(t *testing.T, f func(t *testing.T, k backend.Poller)) {
	for _, b := range append(system.List(), fakes()...) {
		t.Run(b.Name, func(t *testing.T) {
			k, err := b.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := k.Close(); err != nil {
					t.Fatal(err)
				}
			}()
			f(t, k)
		})
	}
}

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return fds[0], fds[1]
}

func change(k backend.Poller, action backend.Action, fd int, token uint64) backend.Status {
	c := []backend.Change{{Handle: uintptr(fd), Token: token, Interest: backend.In | backend.PeerClosed, Action: action}}
	k.Poll(c, nil)
	return c[0].Status
}

func harvest(k backend.Poller) []backend.Ready {
	ready := make([]backend.Ready, 8)
	return ready[:k.Poll(nil, ready)]
}

// report harvests one report, and waits for it as a kernel might make it late.
func report(t *testing.T, k backend.Poller, token uint64) {
	t.Helper()
	var r []backend.Ready
	await.Until(t, "a report", func() bool { r = harvest(k); return len(r) > 0 })
	if len(r) != 1 || r[0].Token != token || r[0].Mask != backend.In {
		t.Fatalf("reports %+v; want token %d, In", r, token)
	}
}

func none(t *testing.T, k backend.Poller) {
	t.Helper()
	if r := harvest(k); len(r) != 0 {
		t.Fatalf("reports %+v; want none", r)
	}
}

func write(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

// park runs Park and fails if it does not return.
func park(t *testing.T, k backend.Poller, until time.Time, poll func() bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- k.Park(until, poll) }()
	defer func() {
		if t.Failed() {
			k.Wake()
		}
	}()
	if err := await.Receive(t, "Park returns", done); err != nil {
		t.Fatal(err)
	}
}

func sleepOn() bool { return false }

func TestStatus(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, _ := pair(t)
		steps := []struct {
			action backend.Action
			want   backend.Status
		}{
			{backend.Set, backend.Absent}, {backend.Suppress, backend.Absent}, {backend.Delete, backend.Absent},
			{backend.Add, backend.Done}, {backend.Add, backend.Present}, {backend.Set, backend.Done},
			{backend.Suppress, backend.Done}, {backend.Add, backend.Present},
			{backend.Delete, backend.Done}, {backend.Delete, backend.Absent},
		}
		for i, s := range steps {
			if got := change(k, s.action, a, 1); got != s.want {
				t.Fatalf("step %d: action %d: status %d; want %d", i, s.action, got, s.want)
			}
		}
		for _, action := range []backend.Action{
			backend.Add, backend.Set, backend.Suppress, backend.Delete,
		} {
			for _, fd := range []int{-1, 1 << 30, 1 << 20} {
				if got := change(k, action, fd, 1); got != backend.Bad {
					t.Fatalf("action %d, descriptor %d: status %d; want Bad", action, fd, got)
				}
			}
		}
	})
}

func TestHas(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		has := func() {
			t.Helper()
			for fd, want := range map[int]bool{a: true, b: false} {
				if has, err := k.Has(uintptr(fd)); has != want || err != nil {
					t.Fatalf("Has = %v, %v; want %v", has, err, want)
				}
			}
		}
		has()
		// Has does not change which reports are due.
		write(t, a)
		write(t, b)
		has()
		report(t, k, 1)
		has()
		none(t, k)
		change(k, backend.Suppress, a, 1)
		has()
		none(t, k)
	})
}

// Set, Suppress and Delete have the status Absent if the number names another socket.
func TestReusedNumberIsAbsent(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		onEach(t, func(t *testing.T, k backend.Poller) {
			a, _ := pair(t)
			c, _ := pair(t)
			change(k, backend.Add, a, 1)
			if err := unix.Dup2(c, a); err != nil {
				t.Fatal(err)
			}
			if got := change(k, action, a, 2); got != backend.Absent {
				t.Fatalf("action %d: status %d; want Absent", action, got)
			}
			if got := change(k, backend.Add, a, 3); got != backend.Done {
				t.Fatalf("Add: status %d", got)
			}
		})
	}
}

func TestSetPolls(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		write(t, b)
		for token := uint64(1); token < 5; token++ {
			report(t, k, token)
			none(t, k)
			change(k, backend.Set, a, token) // the layer above polls again
			report(t, k, token)
			change(k, backend.Set, a, token+1)
		}
		change(k, backend.Suppress, a, 9)
		none(t, k)
		change(k, backend.Set, a, 10)
		report(t, k, 10)
	})
}

// Data arrives after Park's poll, when the caller believes that it may sleep.
func TestArrivalBetweenPollAndSleep(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		for range 100 {
			park(t, k, time.Time{}, func() bool { write(t, b); return false })
			report(t, k, 1)
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
		}
	})
}

// Park's poll finds a report that was ready before Park began, even if an earlier Park left it
// unharvested.
func TestReadyBeforePark(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		for range 100 {
			park(t, k, time.Time{}, func() bool { write(t, b); return false })
			// The report is still unharvested when the second Park begins.
			polled := false
			park(t, k, time.Time{}, func() bool { polled = true; return len(harvest(k)) > 0 })
			if !polled {
				t.Fatal("Park did not poll")
			}
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
			// A later arrival wakes again.
			park(t, k, time.Time{}, func() bool { write(t, b); return false })
			harvest(k)
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
		}
	})
}

// Another goroutine harvests the report that woke the parked one, which parks again and must be woken again.
func TestAnotherHarvestsFirst(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		for range 200 {
			write(t, b)
			harvest(k)
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
			done := make(chan struct{})
			park(t, k, time.Time{}, func() bool {
				go func() { write(t, b); close(done) }()
				return false
			})
			<-done
			harvest(k)
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
		}
	})
}

func TestWakeIsSticky(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		k.Wake()
		park(t, k, time.Time{}, sleepOn)
		park(t, k, time.Time{}, func() bool { k.Wake(); return false })
		// A wake-up is not lost to a Poll.
		park(t, k, time.Time{}, func() bool { k.Wake(); harvest(k); return false })
		for range 200 {
			done := make(chan struct{})
			go func() { k.Wake(); harvest(k); close(done) }()
			park(t, k, time.Time{}, sleepOn)
			<-done
		}
		k.Wake()
		k.Wake()
		park(t, k, time.Time{}, sleepOn)
	})
}

// A deadline ends a Park, not early, and does not keep later ones from blocking.
func TestDeadline(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 1)
		for range 20 {
			parks := 0
			for until := time.Now().Add(2 * time.Millisecond); time.Now().Before(until); parks++ {
				park(t, k, until, sleepOn)
			}
			if parks > 5 {
				t.Fatalf("%d Parks until a deadline", parks)
			}
			k.Wake()
			park(t, k, time.Time{}, sleepOn)
			park(t, k, time.Now().Add(-time.Second), sleepOn)
			// A Park may return early and without cause, but not every time.
			written := false
			for parks = 0; len(harvest(k)) == 0; parks++ {
				if parks > 5 {
					t.Fatal("more than 5 Parks returned without cause")
				}
				park(t, k, time.Time{}, func() bool {
					if !written {
						write(t, b)
						written = true
					}
					return false
				})
			}
			unix.Read(a, make([]byte, 8))
			change(k, backend.Set, a, 1)
		}
	})
}

// A harvest takes no more reports than fit into ready. The next harvest returns the rest.
func TestHarvestFillsNoMoreThanReady(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		const n = 200
		var fds [n]int
		for _, room := range []int{1, 3, 128, n + 1} {
			for i := range fds {
				a, b := pair(t)
				fds[i] = a
				change(k, backend.Add, a, uint64(i))
				write(t, b)
			}
			seen := make(map[uint64]bool)
			ready := make([]backend.Ready, room)
			await.Until(t, "every report", func() bool {
				for got := ready; len(got) > 0 && len(seen) < n; {
					got = ready[:k.Poll(nil, ready)]
					for _, r := range got {
						if seen[r.Token] {
							t.Fatalf("token %d was reported twice", r.Token)
						}
						seen[r.Token] = true
					}
				}
				return len(seen) == n
			})
			none(t, k)
			for _, fd := range fds {
				change(k, backend.Delete, fd, 0)
			}
		}
	})
}

// One call makes changes, sets the status of each, and harvests what they have made ready.
func TestChangesAndHarvestInOneCall(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		c, d := pair(t)
		change(k, backend.Add, a, 1)
		write(t, b)
		write(t, d)
		for _, size := range []int{2, 16} { // 16 also holds reports that a backend cannot merge
			list := []backend.Change{
				{Handle: uintptr(a), Token: 2, Interest: backend.In | backend.PeerClosed, Action: backend.Set},
				{Handle: uintptr(c), Token: 3, Interest: backend.In | backend.PeerClosed, Action: backend.Add},
				{Handle: uintptr(d), Token: 4, Interest: backend.In | backend.PeerClosed, Action: backend.Set},
				{Handle: uintptr(a), Token: 5, Interest: backend.In | backend.PeerClosed, Action: backend.Set},
			}
			ready := make([]backend.Ready, size)
			ready = ready[:k.Poll(list, ready)]
			seen := map[uint64]backend.Mask{}
			for _, r := range ready {
				seen[r.Token] |= r.Mask
			}
			if len(seen) != 2 || seen[3]&backend.In == 0 || seen[5]&backend.In == 0 {
				t.Fatalf("reports %+v", ready)
			}
			for i, want := range []backend.Status{backend.Done, backend.Done, backend.Absent, backend.Done} {
				if list[i].Status != want || (list[i].Err == nil) != (want == backend.Done) {
					t.Fatalf("change %d: status %d, %v; want %d", i, list[i].Status, list[i].Err, want)
				}
			}
			change(k, backend.Delete, c, 0)
		}
	})
}

// With an interest in PeerClosed alone, the end is reported, and data is not.
func TestPeerClosedOnly(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		c := []backend.Change{{Handle: uintptr(a), Token: 1, Interest: backend.PeerClosed, Action: backend.Add}}
		k.Poll(c, nil)
		for range 3 {
			write(t, b)
			if r := harvest(k); len(r) != 0 {
				t.Fatalf("data reported: %+v", r)
			}
			unix.Read(a, make([]byte, 8))
		}
		if err := unix.Shutdown(b, unix.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		var r []backend.Ready
		for len(r) == 0 {
			park(t, k, time.Time{}, func() bool { r = harvest(k); return len(r) > 0 })
		}
		if len(r) != 1 || r[0].Mask&(backend.PeerClosed|backend.In) != backend.PeerClosed {
			t.Fatalf("reports %+v", r)
		}
	})
}
