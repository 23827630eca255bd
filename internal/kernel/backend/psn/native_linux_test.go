package psn_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	"github.com/socknotify/socknotify/internal/test/fakepsn"
)

// A condition that ended before an operation is not reported with its token, although a packet has it.
func TestOldPacketsAreNotReported(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		a, b := pair(t)
		must(t, k, backend.Add, a, 1, both)
		for token := uint64(2); token < 30; token += 2 {
			write(t, b)
			queued()
			drain(a)
			if token%4 == 0 {
				must(t, k, backend.Suppress, a, token, 0)
			}
			must(t, k, backend.Set, a, token, both)
			if token%3 == 0 {
				must(t, k, backend.Set, a, token, both)
			}
			none(t, k)
			write(t, b)
			want(t, k, token, backend.In)
			none(t, k)
			drain(a)
			must(t, k, backend.Set, a, token+1, both)
		}
	})
}

// A socket can be registered at once after a registration with any port was removed (G4).
func TestAddAfterDelete(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k, other := open(t, sys), open(t, sys)
		a, b := pair(t)
		write(t, b)
		for token := uint64(1); token < 40; token++ {
			must(t, k, backend.Add, a, token, both)
			if token%2 == 0 {
				want(t, k, token, backend.In)
			}
			must(t, k, backend.Delete, a, 0, 0)
			if token%3 == 0 {
				k, other = other, k
			}
		}
		none(t, k)
		none(t, other)
	})
}

// The same while a parked goroutine takes the packets.
func TestAddAfterDeleteUnderPark(t *testing.T) {
	onEach(t, addAfterDelete)
}

func TestAddAfterDeleteOfAStoppedProcess(t *testing.T) {
	defer psn.NoWaits()()
	onEach(t, addAfterDelete)
}

func addAfterDelete(t *testing.T, sys *psn.System) {
	k, other := open(t, sys), open(t, sys)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				k.Park(noDeadline, func() bool { return len(harvest(k)) > 0 })
			}
		}
	}()
	a, b := pair(t)
	write(t, b)
	for token := uint64(1); token < 40; token++ {
		must(t, k, backend.Add, a, token, both)
		must(t, k, backend.Delete, a, 0, 0)
		must(t, other, backend.Add, a, token, both)
		must(t, other, backend.Delete, a, 0, 0)
	}
	close(stop)
	k.Wake()
	<-stopped
}

// A socket can be registered with one port alone, and with another port after the first is closed.
func TestTwoPorts(t *testing.T) { onEach(t, twoPorts) }

func TestTwoPortsOfAStoppedProcess(t *testing.T) {
	defer psn.NoWaits()()
	onEach(t, twoPorts)
}

func twoPorts(t *testing.T, sys *psn.System) {
	first, err := psn.NewOn(sys)
	if err != nil {
		t.Fatal(err)
	}
	k := open(t, sys)
	var socks [50]int
	for i := range socks {
		a, b := pair(t)
		socks[i] = a
		write(t, b)
		must(t, first, backend.Add, a, uint64(i), both)
	}
	for _, action := range []backend.Action{backend.Set, backend.Suppress, backend.Delete} {
		if got := change(k, action, socks[0], 1, both); got != backend.Absent {
			t.Fatalf("action %d of another port's socket: status %d; want Absent", action, got)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for i, s := range socks {
		must(t, k, backend.Add, s, uint64(i), both)
	}
}

// A closed handle does not affect the other sockets of its call.
func TestBadHandleInABatch(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		var c []backend.Change
		for i := range 9 {
			a, b := pair(t)
			must(t, k, backend.Add, a, uint64(i), both)
			write(t, b)
			c = append(c, backend.Change{Handle: uintptr(a), Token: uint64(100 + i), Interest: both, Action: backend.Set})
		}
		for i := 1; i < len(c); i += 3 {
			unix.Close(int(c[i].Handle))
		}
		ready := make([]backend.Ready, 16)
		n := k.Poll(c, ready)
		for i := range c {
			if bad := i%3 == 1; bad != (c[i].Status == backend.Bad) || !bad && c[i].Status != backend.Done || bad != (c[i].Err != nil) {
				t.Fatalf("change %d: status %d, %v", i, c[i].Status, c[i].Err)
			}
		}
		for n < 6 {
			more := k.Poll(nil, ready[n:])
			if more == 0 {
				t.Fatalf("%d reports of 6", n)
			}
			n += more
		}
		for _, r := range ready[:n] {
			if r.Token < 100 || r.Token%3 == 2 {
				t.Fatalf("reports %+v", ready[:n])
			}
		}
	})
}

// One Poll makes hundreds of changes.
func TestLongBatch(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		const n = 150
		var c []backend.Change
		for i := range n {
			a, b := pair(t)
			write(t, b)
			c = append(c, backend.Change{Handle: uintptr(a), Token: uint64(i), Interest: both, Action: backend.Add})
		}
		ready := make([]backend.Ready, 2*n)
		for _, action := range []backend.Action{backend.Add, backend.Set, backend.Set, backend.Delete} {
			for i := range c {
				c[i].Action = action
			}
			got := k.Poll(c, ready)
			for i := range c {
				if c[i].Status != backend.Done {
					t.Fatalf("action %d, change %d: %+v", action, i, c[i])
				}
			}
			if action == backend.Delete != (got == 0) || got > 0 && got != n {
				t.Fatalf("action %d: %d reports", action, got)
			}
		}
	})
}

// Probe refuses a system without the behaviour that the backend relies on.
func TestProbeRefuses(t *testing.T) {
	type process = func(uintptr, []psn.Registration, uint32, []psn.Entry) (int, uint32)
	const disable, enable, remove = 2, 1, 4
	ops := func(regs []psn.Registration) (ops uint8) {
		for _, r := range regs {
			ops |= r.Op
		}
		return ops
	}
	for name, c := range map[string]struct {
		found string
		wrap  func(process) process
	}{
		"the call fails": {"enable: the call", func(process) process {
			return func(uintptr, []psn.Registration, uint32, []psn.Entry) (int, uint32) { return 0, 10045 }
		}},
		"disabling always succeeds": {"enable: registration 0", func(p process) process {
			return func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				n, code := p(port, regs, timeout, entries)
				for i := range regs {
					if regs[i].Op == disable {
						regs[i].Result = 0
					}
				}
				return n, code
			}
		}},
		"enabling does not look": {"a first report", func(p process) process {
			return func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				for i := range regs {
					regs[i].Filter = 0
				}
				return p(port, regs, min(timeout, 100), entries) // nothing comes
			}
		}},
		"one shot is not one": {"a second report", func(p process) process {
			return func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				for i := range regs {
					if regs[i].Op == enable {
						regs[i].Trigger ^= 3
					}
				}
				return p(port, regs, timeout, entries)
			}
		}},
		"removal is silent": {"a removal", func(p process) process {
			return func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				n, code := p(port, regs, timeout, entries)
				if n > 0 && entries[0].Transfer&0x80 != 0 {
					return 0, 258
				}
				return n, code
			}
		}},
		"removal always succeeds": {"remove again", func(p process) process {
			return func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				n, code := p(port, regs, timeout, entries)
				if ops(regs) == remove {
					regs[0].Result = 0
				}
				return n, code
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			sys := fakepsn.New(fakepsn.Quirks{}).System()
			sys.Process = c.wrap(sys.Process)
			if err := psn.Probe(sys); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), c.found) {
				t.Fatalf("Probe = %v; want ErrUnsupported, for %s", err, c.found)
			}
		})
	}
}

func TestProbeFindsSnapshots(t *testing.T) {
	for seed := range uint64(32) {
		q := fakepsn.Seeded(seed)
		sys := fakepsn.New(q).System()
		if err := psn.Probe(sys); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := q.DisarmWhenQueued && !q.Refresh; sys.Snapshots != want {
			t.Errorf("seed %d: Snapshots = %v; want %v", seed, sys.Snapshots, want)
		}
	}
}
