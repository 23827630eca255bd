//go:build unix

package system_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// rechecks returns Sets that repeat the token and interest that the kernel has.
func rechecks(token uint64, fds ...int) []backend.Change {
	var cs []backend.Change
	for i, fd := range fds {
		cs = append(cs, backend.Change{
			Handle: uintptr(fd), Token: token + uint64(i), Interest: backend.In | backend.PeerClosed,
			Action: backend.Set, SkipIdle: true,
		})
	}
	return cs
}

// A Set with SkipIdle reports the conditions that hold, and nothing for an idle socket, which remains watched. There
// are more of them than one poll(2) takes, with other changes among them.
func TestSkipIdleReportsWhatHolds(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		const n = 71
		var watched, peers []int
		for i := range n {
			a, b := pair(t)
			change(k, backend.Add, a, uint64(i))
			write(t, b)
			watched, peers = append(watched, a), append(peers, b)
		}
		reported := func() map[uint64]bool {
			seen := map[uint64]bool{}
			ready := make([]backend.Ready, n+1)
			for _, r := range ready[:k.Poll(nil, ready)] {
				if seen[r.Token] || r.Mask&backend.In == 0 {
					t.Errorf("reported %+v", r)
				}
				seen[r.Token] = true
			}
			return seen
		}
		reported()
		for round := range 5 {
			// Every third socket is drained; every fifth gets a new token, without SkipIdle.
			cs := rechecks(0, watched...)
			for i := range cs {
				if i%3 == round%3 {
					unix.Read(watched[i], make([]byte, 8))
				}
				if i%5 == round%5 {
					cs[i].SkipIdle, cs[i].Token = false, 1000+uint64(i)
				}
			}
			k.Poll(cs, nil)
			for i, c := range cs {
				if c.Status != backend.Done || c.Err != nil {
					t.Fatalf("change %d: status %d, %v", i, c.Status, c.Err)
				}
			}
			seen := reported()
			for i, c := range cs {
				if holds := i%3 != round%3; seen[c.Token] != holds {
					t.Fatalf("round %d: socket %d is reported: %v; want %v", round, i, seen[c.Token], holds)
				}
			}
			for i := range cs {
				cs[i].SkipIdle, cs[i].Token = false, uint64(i)
				if i%3 == round%3 {
					write(t, peers[i])
				}
			}
			k.Poll(cs, nil)
			if seen := reported(); len(seen) != n {
				t.Fatalf("round %d: %d of %d sockets reported", round, len(seen), n)
			}
		}
	})
}

// An idle socket remains watched: what arrives next is reported.
func TestSkipIdleKeepsWatching(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, b := pair(t)
		change(k, backend.Add, a, 7)
		for range 3 {
			k.Poll(rechecks(7, a), nil)
			if r := harvest(k); len(r) != 0 {
				t.Fatalf("reports %+v", r)
			}
			write(t, b)
			if r := harvest(k); len(r) != 1 || r[0].Token != 7 {
				t.Fatalf("reports %+v", r)
			}
			unix.Read(a, make([]byte, 8))
		}
	})
}

// Nothing is reported for another socket that has reused the number, whatever conditions hold for it.
func TestSkipIdleOfReusedNumber(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		a, _ := pair(t)
		c, d := pair(t)
		change(k, backend.Add, a, 7)
		if err := unix.Dup2(c, a); err != nil {
			t.Fatal(err)
		}
		write(t, d)
		cs := rechecks(7, a)
		if k.Poll(cs, nil); cs[0].Status != backend.Absent {
			t.Errorf("status %d; want Absent", cs[0].Status)
		}
		if r := harvest(k); len(r) != 0 {
			t.Fatalf("reports %+v", r)
		}
	})
}

// A Set with SkipIdle of a closed number has the status Bad.
func TestSkipIdleOfClosedNumber(t *testing.T) {
	onEach(t, func(t *testing.T, k backend.Poller) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		change(k, backend.Add, fds[0], 7)
		unix.Close(fds[0])
		unix.Close(fds[1])
		cs := rechecks(7, fds[0])
		if k.Poll(cs, nil); cs[0].Status != backend.Bad {
			t.Errorf("status %d, %v; want Bad", cs[0].Status, cs[0].Err)
		}
	})
}
