package psn_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/psn"
	"github.com/socknotify/socknotify/internal/kernel/psn/fakepsn"
)

// onBreaking runs a test with each fault, and with all of them, on several fakes.
func onBreaking(t *testing.T, f func(t *testing.T, k kernel.Poller, forgets bool)) {
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

// insist repeats a change until it is not refused, which must have changed nothing, and fails if its outcome
// is another than wanted.
func insist(t *testing.T, k kernel.Poller, want kernel.Status, action kernel.Action, s int, token uint64, interest kernel.Mask) {
	t.Helper()
	if got := settled(k, action, s, token, interest); got != want {
		t.Fatalf("action %d: status %d; want %d", action, got, want)
	}
}

func settled(k kernel.Poller, action kernel.Action, s int, token uint64, interest kernel.Mask) (got kernel.Status) {
	for range 10000 {
		if got = change(k, action, s, token, interest); got != kernel.Refused {
			break
		}
	}
	return got
}

// await harvests until there is a report that says something, which must have this token and mask. One that
// says nothing, or was for nothing, asks for another look.
func await(t *testing.T, k kernel.Poller, s int, token uint64, mask, interest kernel.Mask) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for _, r := range harvest(k) {
			switch {
			case r.Token != token:
				t.Fatalf("report %+v; want token %d", r, token)
			case r.Mask&mask == mask:
				return
			}
			insist(t, k, kernel.Done, kernel.Set, s, token, interest)
		}
	}
	t.Fatalf("no report of token %d", token)
}

// Each life of a registration, and of a number, goes as it should, though now and then the system fails.
func TestFaults(t *testing.T) {
	onBreaking(t, func(t *testing.T, k kernel.Poller, forgets bool) {
		enable := func(s int, token uint64) {
			t.Helper()
			if forgets && settled(k, kernel.Set, s, token, both) == kernel.Absent {
				insist(t, k, kernel.Done, kernel.Add, s, token, both) // as the layer does
				return
			}
			insist(t, k, kernel.Done, kernel.Set, s, token, both)
		}
		a, b := pair(t)
		for token := uint64(1); token < 60; token += 4 {
			insist(t, k, kernel.Done, kernel.Add, a, token, both)
			insist(t, k, kernel.Present, kernel.Add, a, token, both)
			write(t, b)
			await(t, k, a, token, kernel.In, both)
			insist(t, k, kernel.Done, kernel.Mute, a, token+1, 0)
			enable(a, token+2)
			await(t, k, a, token+2, kernel.In, both)
			drain(a)
			enable(a, token+3)
			if has, err := k.Has(uintptr(a)); !has || err != nil {
				t.Fatalf("Has = %v, %v", has, err)
			}
			switch token / 4 % 3 {
			case 0:
				insist(t, k, kernel.Done, kernel.Delete, a, 0, 0)
				insist(t, k, kernel.Absent, kernel.Delete, a, 0, 0)
			case 1: // another socket takes the number
				c, d := pair(t)
				if err := unix.Dup3(c, a, unix.O_CLOEXEC); err != nil {
					t.Fatal(err)
				}
				unix.Close(c)
				b = d
				insist(t, k, kernel.Absent, kernel.Set, a, token+1000, both)
			case 2:
				unix.Close(a)
				insist(t, k, kernel.Bad, kernel.Set, a, token+1000, both)
				a, b = pair(t)
			}
		}
	})
}

// What arrives at many sockets is received, with nothing but reports to tell when, by a goroutine that parks.
func TestFaultsUnderPark(t *testing.T) {
	const socks, each = 12, 60
	onBreaking(t, func(t *testing.T, k kernel.Poller, _ bool) {
		var ends [socks]int
		var got [socks]int
		for i := range ends {
			a, b := pair(t)
			ends[i] = a
			insist(t, k, kernel.Done, kernel.Add, a, uint64(i), both)
			go func() {
				for range each {
					unix.Write(b, []byte("x"))
					time.Sleep(10 * time.Microsecond)
				}
			}()
		}
		var buf [64]byte
		var sets []kernel.Change
		ready := make([]kernel.Ready, 5)
		end := time.Now().Add(time.Minute)
		for left := socks * each; left > 0; {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are missing, received %v", left, got)
			}
			n := k.Poll(sets, ready)
			refused := sets[:0]
			for _, c := range sets {
				switch c.Status {
				case kernel.Done:
				case kernel.Refused:
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
				sets = append(sets, kernel.Change{Handle: uintptr(ends[i]), Token: i, Interest: both, Action: kernel.Set})
			}
			if len(sets) == 0 && left > 0 {
				if err := k.Park(end, func() bool { return false }); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
