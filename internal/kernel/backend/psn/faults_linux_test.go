package psn_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
)

// onBreaking runs a test with each fault, and with all of them, on several fakes.
func onBreaking(t *testing.T, f func(t *testing.T, k backend.Poller, forgets bool)) {
	for name, faults := range map[string]fakepsn.Faults{
		"Call": {Call: 2}, "Entry": {Entry: 2}, "Early": {Early: 2}, "Half": {Half: 2}, "Foreign": {Foreign: 2}, "Late": {Late: 1},
		"all": {Call: 5, Entry: 5, Early: 5, Half: 5, Foreign: 5, Late: 2},
	} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				fake := fakepsn.NewBreaking(fakepsn.Seeded(seed), faults, seed)
				sys := fake.System()
				if err := psn.Probe(sys); err != nil {
					t.Fatal(err)
				}
				k := open(t, sys)
				fake.Break(true)
				f(t, k, faults.Entry > 0)
				fake.Break(false)
				if t.Failed() {
					t.Logf("%+v", fakepsn.Seeded(seed))
				}
			})
		}
	}
}

// insist repeats a change while it is refused, which changes nothing, and fails if its final status is not the
// wanted one.
func insist(t *testing.T, k backend.Poller, want backend.Status, action backend.Action, s int, token uint64, interest backend.Mask) {
	t.Helper()
	if got := settled(k, action, s, token, interest); got != want {
		t.Fatalf("action %d: status %d; want %d", action, got, want)
	}
}

func settled(k backend.Poller, action backend.Action, s int, token uint64, interest backend.Mask) (got backend.Status) {
	for range 10000 {
		if got = change(k, action, s, token, interest); got != backend.Refused {
			break
		}
	}
	return got
}

// await harvests until there is a report with conditions, which must have the given token and mask. After a spurious
// report, or one without conditions, it makes another Set.
func await(t *testing.T, k backend.Poller, s int, token uint64, mask, interest backend.Mask) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for _, r := range harvest(k) {
			switch {
			case r.Token != token:
				t.Fatalf("report %+v; want token %d", r, token)
			case r.Mask&mask == mask:
				return
			}
			insist(t, k, backend.Done, backend.Set, s, token, interest)
		}
	}
	t.Fatalf("no report of token %d", token)
}

// Registrations and reused numbers work while the system fails at random.
func TestFaults(t *testing.T) {
	onBreaking(t, func(t *testing.T, k backend.Poller, forgets bool) {
		enable := func(s int, token uint64) {
			t.Helper()
			if forgets && settled(k, backend.Set, s, token, both) == backend.Absent {
				insist(t, k, backend.Done, backend.Add, s, token, both) // as the layer above does
				return
			}
			insist(t, k, backend.Done, backend.Set, s, token, both)
		}
		a, b := pair(t)
		for token := uint64(1); token < 60; token += 4 {
			insist(t, k, backend.Done, backend.Add, a, token, both)
			insist(t, k, backend.Present, backend.Add, a, token, both)
			write(t, b)
			await(t, k, a, token, backend.In, both)
			insist(t, k, backend.Done, backend.Suppress, a, token+1, 0)
			enable(a, token+2)
			await(t, k, a, token+2, backend.In, both)
			drain(a)
			enable(a, token+3)
			if has, err := k.Has(uintptr(a)); !has || err != nil {
				t.Fatalf("Has = %v, %v", has, err)
			}
			switch token / 4 % 3 {
			case 0:
				insist(t, k, backend.Done, backend.Delete, a, 0, 0)
				insist(t, k, backend.Absent, backend.Delete, a, 0, 0)
			case 1: // another socket takes the number
				c, d := pair(t)
				if err := unix.Dup3(c, a, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				unix.Close(c)
				b = d
				insist(t, k, backend.Absent, backend.Set, a, token+1000, both)
			case 2:
				unix.Close(a)
				insist(t, k, backend.Bad, backend.Set, a, token+1000, both)
				a, b = pair(t)
			}
		}
	})
}

// A goroutine that parks receives all data of many sockets, and receives only after reports.
func TestFaultsUnderPark(t *testing.T) {
	const socks, each = 12, 60
	onBreaking(t, func(t *testing.T, k backend.Poller, _ bool) {
		var ends [socks]int
		var got [socks]int
		for i := range ends {
			a, b := pair(t)
			ends[i] = a
			insist(t, k, backend.Done, backend.Add, a, uint64(i), both)
			go func() {
				for range each {
					unix.Write(b, []byte("x"))
					testawait.Pause(10 * time.Microsecond)
				}
			}()
		}
		var buf [64]byte
		var sets []backend.Change
		ready := make([]backend.Ready, 5)
		end := time.Now().Add(time.Minute)
		for left := socks * each; left > 0; {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are missing, received %v", left, got)
			}
			n := k.Poll(sets, ready)
			refused := sets[:0]
			for _, c := range sets {
				switch c.Status {
				case backend.Done:
				case backend.Refused:
					refused = append(refused, c)
				default:
					t.Fatalf("%+v", c)
				}
			}
			sets = refused
			for _, r := range ready[:n] {
				i := r.Token
				for {
					n, _ := unix.Read(ends[i], buf[:])
					if n <= 0 {
						break
					}
					got[i] += n
					left -= n
				}
				sets = append(sets, backend.Change{Handle: uintptr(ends[i]), Token: i, Interest: both, Action: backend.Set})
			}
			if len(sets) == 0 && left > 0 {
				if err := k.Park(end, func() bool { return false }); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
