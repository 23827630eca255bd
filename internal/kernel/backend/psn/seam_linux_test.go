package psn_test

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
)

// A change of a closed socket is Bad. If another socket has the number, it is Absent.
func TestClosedAndReused(t *testing.T) {
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		onEach(t, func(t *testing.T, sys *psn.System) {
			k := open(t, sys)
			for _, token := range []uint64{1, 7} { // a Set of the layer above, and one of the program
				a, _ := pair(t)
				must(t, k, backend.Add, a, 1, both)
				unix.Close(a)
				if got := change(k, action, a, token, both); got != backend.Bad {
					t.Fatalf("closed: status %d; want Bad", got)
				}
				a, _ = pair(t)
				c, d := pair(t)
				must(t, k, backend.Add, a, 1, both)
				if err := unix.Dup3(c, a, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				if has, err := k.Has(uintptr(a)); has || err != nil {
					t.Fatalf("Has = %v, %v", has, err)
				}
				must(t, k, backend.Add, a, 2, both)
				if err := unix.Dup3(c, a, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				e, _ := pair(t)
				if err := unix.Dup3(e, a, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				write(t, d)
				if got := change(k, action, a, token, both); got != backend.Absent {
					t.Fatalf("reused: status %d; want Absent", got)
				}
				queued()
				none(t, k)
			}
		})
	}
}

// The harvest of a Poll has the conditions that hold after the changes of the same Poll.
func TestChangesComeBeforeTheHarvest(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		a, b := pair(t)
		write(t, b)
		add := func(action backend.Action, token uint64) []backend.Change {
			return []backend.Change{{Handle: uintptr(a), Token: token, Interest: both, Action: action}}
		}
		ready := make([]backend.Ready, 4)
		for token, action := range []backend.Action{backend.Add, backend.Set, backend.Set} {
			if n := k.Poll(add(action, uint64(token)), ready); n != 1 || ready[0].Token != uint64(token) {
				t.Fatalf("%d reports, %+v; want token %d", n, ready[:n], token)
			}
		}
		must(t, k, backend.Set, a, 5, both)
		queued()
		for _, action := range []backend.Action{backend.Suppress, backend.Delete} {
			if n := k.Poll(add(action, 6), ready); n != 0 {
				t.Fatalf("action %d: %+v", action, ready[:n])
			}
		}
		// All actions on one handle, in order.
		all := append(append(append(add(backend.Add, 1), add(backend.Set, 2)...), add(backend.Delete, 3)...), add(backend.Add, 4)...)
		if n := k.Poll(all, ready); n != 1 || ready[0].Token != 4 {
			t.Fatalf("%d reports, %+v; want token 4", n, ready[:n])
		}
		for _, c := range all {
			if c.Status != backend.Done {
				t.Fatalf("%+v", all)
			}
		}
	})
}

// Other goroutines harvest, change and remove the registration that woke the parked one, or take its wake-up.
func TestOthersTakeThePacket(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		a, b := pair(t)
		c, _ := pair(t)
		must(t, k, backend.Add, a, 1, both)
		for i := range 100 {
			token := uint64(2 * i)
			var others sync.WaitGroup
			meddle := sync.OnceFunc(func() {
				others.Go(func() {
					if _, err := unix.Write(b, []byte("x")); err != nil {
						t.Error(err)
					}
					for _, c := range []backend.Change{
						{Handle: uintptr(c), Token: 1, Interest: both, Action: backend.Add},
						{Handle: uintptr(a), Token: token + 1, Interest: both, Action: backend.Set},
						{Handle: uintptr(c), Action: backend.Delete},
					} {
						if got := change(k, c.Action, int(c.Handle), c.Token, c.Interest); got != backend.Done {
							t.Errorf("action %d: status %d; want Done", c.Action, got)
						}
					}
					k.Wake()
					harvest(k)
				})
			})
			park(t, k, time.Time{}, func() bool { meddle(); return false })
			meddle() // a Wake of the last round may have come late, and ended this Park before it polled
			others.Wait()
			must(t, k, backend.Set, a, token+2, both)
			want(t, k, token+2, backend.In)
			drain(a)
		}
	})
}

// A port can be closed while additions to another one wait for its registrations to end.
func TestCloseWhileOthersAdd(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		other := open(t, sys)
		var sockets []int
		for range 4 {
			a, _ := pair(t)
			sockets = append(sockets, a)
		}
		for round := range 50 {
			k, err := psn.NewOn(sys)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range sockets {
				must(t, k, backend.Add, s, 1, both)
			}
			var adding sync.WaitGroup
			for _, s := range sockets {
				adding.Go(func() { change(other, backend.Add, s, 1, both) })
			}
			time.Sleep(time.Duration(round) * 10 * time.Microsecond) // so that each round closes at another moment
			if err := k.Close(); err != nil {
				t.Fatal(err)
			}
			adding.Wait()
			for _, s := range sockets {
				change(other, backend.Delete, s, 0, 0)
			}
			harvest(other)
		}
	})
}
