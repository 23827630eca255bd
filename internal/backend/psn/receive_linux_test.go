package psn_test

import (
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/psn"
	"github.com/socknotify/socknotify/internal/backend/psn/fakepsn"
)

// onReceiving runs a test on each fake on which the kernel may receive. On the others no receive starts.
func onReceiving(t *testing.T, f func(t *testing.T, k receiver, sys *psn.System)) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		k := open(t, sys)
		if sys.Receives {
			f(t, k.(receiver), sys)
			return
		}
		byReadiness(t, k)
	})
}

type receiver interface {
	backend.Poller
	backend.Receiver
}

// byReadiness checks that no receive starts and that the socket is still watched.
func byReadiness(t *testing.T, k backend.Poller) {
	t.Helper()
	a, b := watched(t, k)
	if k.(receiver).Receive(uintptr(a), newReceive(1)) {
		t.Fatal("started, although the probe said no")
	}
	write(t, b)
	want(t, k, 1, backend.In)
}

// watched makes a pair of sockets of which the first is watched, under token 1.
func watched(t *testing.T, k backend.Poller) (a, b int) {
	t.Helper()
	a, b = pair(t)
	must(t, k, backend.Add, a, 1, both)
	return a, b
}

// writeAsRemove writes 128 bytes, a number that means EVENT_REMOVE in a packet of a registration.
func writeAsRemove(t *testing.T, s int) {
	t.Helper()
	if _, err := unix.Write(s, make([]byte, 128)); err != nil {
		t.Fatal(err)
	}
}

func newReceive(size int) *backend.Receive {
	return &backend.Receive{Exchange: backend.Exchange{Buf: make([]byte, size)}}
}

// startReceive starts a receive from a watched socket.
func startReceive(t *testing.T, k receiver, s int, r *backend.Receive) {
	t.Helper()
	if !k.Receive(uintptr(s), r) {
		t.Fatal("not started")
	}
}

// ends waits for the report of a receive, and checks its outcome.
func ends(t *testing.T, k receiver, token uint64, r *backend.Receive, n int, err error) {
	t.Helper()
	want(t, k, token, backend.In)
	outcome(t, r, n, err)
}

func outcome(t *testing.T, r *backend.Receive, n int, err error) {
	t.Helper()
	if !r.Ended.Load() || r.N != n || r.Err != err || r.Void {
		t.Fatalf("ended %t with %d, %v, void %t; want %d, %v", r.Ended.Load(), r.N, r.Err, r.Void, n, err)
	}
	r.Ended.Store(false)
}

func revoke(t *testing.T, k receiver, r *backend.Receive) {
	t.Helper()
	if !k.Revoke(r) || !r.Ended.Load() {
		t.Fatal("not revoked")
	}
	r.Ended.Store(false)
}

func TestReceive(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		a, b := watched(t, k)
		r := newReceive(200)
		for range 3 {
			startReceive(t, k, a, r)
			if k.Receive(uintptr(a), newReceive(1)) {
				t.Fatal("a second receive was started")
			}
			none(t, k)
			write(t, b)
			ends(t, k, 1, r, 1, nil)
			if r.Buf[0] != 'x' {
				t.Fatalf("received %q", r.Buf[:1])
			}
			queued()
			none(t, k)
		}
		writeAsRemove(t, b)
		startReceive(t, k, a, r)
		ends(t, k, 1, r, 128, nil)
		unix.Shutdown(b, unix.SHUT_WR)
		startReceive(t, k, a, r)
		ends(t, k, 1, r, 0, nil)
	})
}

func TestReceiveReset(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		a, b := watched(t, k)
		write(t, a)
		r := newReceive(2)
		startReceive(t, k, a, r)
		unix.Close(b) // without having received
		ends(t, k, 1, r, 0, unix.ECONNRESET)
	})
}

// An error that the system returns from the start is reported as the outcome.
func TestReceiveFailsAtOnce(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, sys *psn.System) {
		failing := sys.NewOverlapped
		sys.NewOverlapped = func() psn.Overlapped { return failsAtOnce{failing()} }
		a, _ := watched(t, k)
		r := newReceive(2)
		park(t, k, noDeadline, func() bool {
			startReceive(t, k, a, r)
			return false
		})
		ends(t, k, 1, r, 0, io.ErrClosedPipe)
	})
}

type failsAtOnce struct{ psn.Overlapped }

func (failsAtOnce) Start(uintptr, []byte) (bool, error) { return false, io.ErrClosedPipe }

// The packet of an overlapped call that the program makes by itself is dropped.
func TestReceiveForeign(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, sys *psn.System) {
		a, b := watched(t, k)
		r := newReceive(2)
		startReceive(t, k, a, r)
		write(t, b)
		ends(t, k, 1, r, 1, nil)
		foreign := sys.NewOverlapped()
		for i := range 3 {
			if started, err := foreign.Start(uintptr(a), make([]byte, 1)); !started {
				t.Fatal(err)
			}
			write(t, b)
			queued()
			if i == 0 {
				park(t, k, noDeadline, sleepOn)
			}
			none(t, k)
		}
		startReceive(t, k, a, r)
		write(t, b)
		ends(t, k, 1, r, 1, nil)
	})
}

// The end of a receive is reported after each Set until the caller has handled it, because a report may be lost to a Set
// that another call makes at the same time.
func TestReceiveReportedAgain(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		a, b := watched(t, k)
		r := newReceive(2)
		startReceive(t, k, a, r)
		write(t, b)
		want(t, k, 1, backend.In)
		for token := uint64(2); token < 5; token++ {
			must(t, k, backend.Set, a, token, 0)
			want(t, k, token, backend.In)
		}
		park(t, k, noDeadline, func() bool {
			go change(k, backend.Set, a, 5, 0)
			return false
		})
		ends(t, k, 5, r, 1, nil)
		must(t, k, backend.Set, a, 6, 0)
		none(t, k)
		// A report that was not taken before the caller has handled the end is not made.
		startReceive(t, k, a, r)
		write(t, b)
		queued()
		park(t, k, noDeadline, sleepOn)
		outcome(t, r, 1, nil)
		none(t, k)
	})
}

// The socket can be watched for other conditions during a receive.
func TestReceiveAndOut(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		a, b := watched(t, k)
		r := newReceive(2)
		startReceive(t, k, a, r)
		must(t, k, backend.Set, a, 2, backend.Out)
		want(t, k, 2, backend.Out)
		none(t, k)
		write(t, b)
		ends(t, k, 2, r, 1, nil)
		must(t, k, backend.Set, a, 3, both)
		none(t, k)
		write(t, b)
		want(t, k, 3, backend.In)
	})
}

func TestRevoke(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		a, b := watched(t, k)
		r := newReceive(2)
		for range 50 {
			startReceive(t, k, a, r)
			if revoke(t, k, r); !r.Void || r.N != 0 || r.Err != nil {
				t.Fatalf("revoked: void %t, %d, %v", r.Void, r.N, r.Err)
			}
			none(t, k)
		}
		write(t, b)
		startReceive(t, k, a, r)
		want(t, k, 1, backend.In)
		if revoke(t, k, r); r.Void || r.N != 1 {
			t.Fatalf("revoked after the end: void %t, %d, %v", r.Void, r.N, r.Err)
		}
		writeAsRemove(t, b)
		r = newReceive(200)
		startReceive(t, k, a, r)
		if revoke(t, k, r); r.Void || r.N != 128 {
			t.Fatalf("revoked after the end: void %t, %d, %v", r.Void, r.N, r.Err)
		}
	})
}

// No byte is lost where a receive is revoked at the time that the byte arrives, also if a parked goroutine takes the packet.
func TestRevokeRaces(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		stop := parked(k)
		defer stop()
		a, b := watched(t, k)
		r := newReceive(1)
		got := 0
		const rounds = 100
		for range rounds {
			startReceive(t, k, a, r)
			var sent sync.WaitGroup
			sent.Go(func() { unix.Write(b, []byte("x")) })
			revoke(t, k, r)
			sent.Wait()
			if !r.Void {
				if r.N != 1 || r.Err != nil || r.Buf[0] != 'x' {
					t.Fatalf("%d, %v, %q", r.N, r.Err, r.Buf)
				}
				got++
			}
			r.Buf[0] = 0
		}
		rest := make([]byte, rounds)
		if n, _ := unix.Read(a, rest); got+max(n, 0) != rounds {
			t.Errorf("%d bytes of %d", got+n, rounds)
		}
	})
}

// parked parks a goroutine again and again until stop is called.
func parked(k backend.Poller) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			default:
				k.Park(noDeadline, func() bool { return len(harvest(k)) > 0 })
			}
		}
	}()
	return func() {
		close(over)
		k.Wake()
		<-done
	}
}

// After its registration was removed, a receive keeps its buffer, and its end is not reported, also if it came before.
func TestReceiveOutlivesRegistration(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		for _, before := range []bool{false, true} {
			a, b := watched(t, k)
			r := newReceive(2)
			startReceive(t, k, a, r)
			if before {
				write(t, b)
				queued()
			}
			must(t, k, backend.Delete, a, 0, 0)
			runtime.GC()
			if !before {
				write(t, b)
				queued()
			}
			none(t, k)
			revoke(t, k, r)
			if r.Void || r.N != 1 || r.Buf[0] != 'x' {
				t.Fatalf("void %t, %d, %v", r.Void, r.N, r.Err)
			}
			none(t, k)
		}
	})
}

// A receive ends when the socket is closed, and the number can be watched again at once.
func TestReceiveClosed(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, _ *psn.System) {
		for range 5 {
			a, _ := watched(t, k)
			r := newReceive(2)
			startReceive(t, k, a, r)
			c, d := pair(t)
			if err := unix.Dup3(c, a, unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			must(t, k, backend.Add, a, 2, both)
			if revoke(t, k, r); r.N != 0 || !r.Void && r.Err == nil {
				t.Fatalf("void %t, %d, %v", r.Void, r.N, r.Err)
			}
			none(t, k)
			other := newReceive(2)
			startReceive(t, k, a, other)
			write(t, d)
			ends(t, k, 2, other, 1, nil)
			unix.Close(a)
		}
	})
}

// A socket that a Poller receives from by itself is still watched by others, which receive when it is ready. After Detach they
// receive by themselves too.
func TestReceiveForOne(t *testing.T) {
	onReceiving(t, func(t *testing.T, k receiver, sys *psn.System) {
		q := open(t, sys).(receiver)
		a, b := watched(t, k)
		r := newReceive(2)
		startReceive(t, k, a, r)
		revoke(t, k, r)
		must(t, k, backend.Delete, a, 0, 0)
		must(t, q, backend.Add, a, 2, both)
		if q.Receive(uintptr(a), r) {
			t.Fatal("a socket belongs to two ports")
		}
		write(t, b)
		want(t, q, 2, backend.In)
		drain(a)

		c, d := pair(t)
		for i, p := range []receiver{k, q, k} {
			must(t, p, backend.Add, c, uint64(i), both)
			startReceive(t, p, c, r)
			write(t, d)
			ends(t, p, uint64(i), r, 1, nil)
			p.Detach(uintptr(c))
			must(t, p, backend.Delete, c, 0, 0)
			none(t, p)
		}

		u, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(u)
		must(t, k, backend.Add, u, 1, both)
		if k.Receive(uintptr(u), r) {
			t.Error("the kernel receives a datagram")
		}
		if k.Receive(uintptr(b), r) {
			t.Error("the kernel receives from a socket that is not watched")
		}
	})
}

// Close gets all buffers back.
func TestCloseWhileReceiving(t *testing.T) {
	onEach(t, func(t *testing.T, sys *psn.System) {
		if !sys.Receives {
			return // onReceiving has tested that
		}
		p, err := psn.NewOn(sys)
		if err != nil {
			t.Fatal(err)
		}
		k := p.(receiver)
		var all [8]*backend.Receive
		for i := range all {
			a, _ := pair(t)
			must(t, k, backend.Add, a, uint64(i), both)
			all[i] = newReceive(8)
			startReceive(t, k, a, all[i])
		}
		if err := k.Close(); err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if !r.Ended.Load() || !r.Void {
				t.Fatalf("ended %t, void %t, %d, %v", r.Ended.Load(), r.Void, r.N, r.Err)
			}
		}
	})
}

// All bytes of many sockets are received while a goroutine parks and the system fails at random, by the kernel or, where a
// receive does not start, after reports.
func TestFaultsWhileReceiving(t *testing.T) {
	const socks, each = 8, 40
	onBreaking(t, func(t *testing.T, p backend.Poller, forgets bool) {
		k := p.(receiver)
		var ends [socks]int
		var got [socks]int
		var rs [socks]*backend.Receive
		var out [socks]bool
		by := 0
		next := func(i int) {
			if out[i] = k.Receive(uintptr(ends[i]), rs[i]); out[i] {
				by++
				return
			}
			if settled(k, backend.Set, ends[i], uint64(i), both) == backend.Absent && forgets {
				insist(t, k, backend.Done, backend.Add, ends[i], uint64(i), both)
			}
		}
		for i := range ends {
			a, b := pair(t)
			ends[i], rs[i] = a, newReceive(3)
			insist(t, k, backend.Done, backend.Add, a, uint64(i), both)
			next(i)
			go func() {
				for range each {
					unix.Write(b, []byte("x"))
					time.Sleep(10 * time.Microsecond)
				}
			}()
		}
		var buf [64]byte
		end := time.Now().Add(time.Minute)
		for left := socks * each; left > 0; {
			if time.Now().After(end) {
				t.Fatalf("%d bytes are missing, received %v", left, got)
			}
			reports := harvest(k)
			for _, ready := range reports {
				i := ready.Token
				n := 0
				switch r := rs[i]; {
				case !out[i]:
					n, _ = unix.Read(ends[i], buf[:])
				case !r.Ended.Load():
					continue // an early report
				case r.Void || r.Err != nil:
					t.Fatalf("void %t, %v", r.Void, r.Err)
				default:
					n = r.N
					r.Ended.Store(false)
				}
				got[i] += max(n, 0)
				left -= max(n, 0)
				next(int(i))
			}
			if len(reports) == 0 && left > 0 {
				if err := k.Park(end, sleepOn); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, r := range rs {
			if out[i] && !k.Revoke(r) {
				t.Error("not revoked")
			}
		}
		t.Logf("%d receives by the kernel", by)
	})
}

// Probe finds out whether the kernel may receive.
func TestProbeFindsReceives(t *testing.T) {
	found := make(map[bool]int)
	for seed := range uint64(32) {
		q := fakepsn.Seeded(seed)
		sys := fakepsn.New(q).System()
		if err := psn.Probe(sys); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := !q.RegisteredIsTaken && !q.NoDissociation; sys.Receives != want {
			t.Errorf("seed %d: Receives = %v; want %v", seed, sys.Receives, want)
		}
		found[sys.Receives]++
	}
	if found[true] == 0 || found[false] == 0 {
		t.Errorf("%v: the seeds have only one answer", found)
	}
}

// Probe says no to receives where the system lacks what they rely on. The backend is used without them.
func TestProbeRefusesReceives(t *testing.T) {
	changed := func(change func(o psn.Overlapped) psn.Overlapped) func(*psn.System) {
		return func(sys *psn.System) {
			was := sys.NewOverlapped
			sys.NewOverlapped = func() psn.Overlapped { return change(was()) }
		}
	}
	for name, change := range map[string]func(*psn.System){
		"no socket to try": func(sys *psn.System) {
			was, calls := sys.Datagram, 0
			sys.Datagram = func() (uintptr, func() error, func(), error) {
				if calls++; calls > 1 {
					return 0, nil, nil, unix.EMFILE
				}
				return was()
			}
		},
		"not associated": func(sys *psn.System) {
			sys.Associate = func(uintptr, uintptr, uintptr) error { return unix.EINVAL }
		},
		"another key": func(sys *psn.System) {
			was := sys.Associate
			sys.Associate = func(handle, port, key uintptr) error { return was(handle, port, key+100) }
		},
		"no address": func(sys *psn.System) {
			was := sys.Process
			sys.Process = func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				n, code := was(port, regs, timeout, entries)
				for i := range n {
					entries[i].Overlapped = 0
				}
				return n, code
			}
		},
		"the association ends the registration": func(sys *psn.System) {
			was := sys.Associate
			sys.Associate = func(handle, port, key uintptr) error {
				sys.Process(port, []psn.Registration{{Socket: handle, Key: key + 1, Op: 4}}, 0, nil)
				return was(handle, port, key)
			}
		},
		"the registration is silent afterwards": func(sys *psn.System) {
			var of uintptr
			associate, process := sys.Associate, sys.Process
			sys.Associate = func(handle, port, key uintptr) error { of = handle; return associate(handle, port, key) }
			sys.Process = func(port uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
				for i := range regs {
					if regs[i].Socket == of && of != 0 && regs[i].Op == 1 {
						regs[i].Filter = 0
					}
				}
				return process(port, regs, timeout, entries)
			}
		},
		"a receive does not start":   changed(func(o psn.Overlapped) psn.Overlapped { return lazy{o, false} }),
		"a receive does not end":     changed(func(o psn.Overlapped) psn.Overlapped { return lazy{o, true} }),
		"canceling has no effect":    changed(func(o psn.Overlapped) psn.Overlapped { return stubborn{o} }),
		"a canceled one seems whole": changed(func(o psn.Overlapped) psn.Overlapped { return whole{o} }),
		"taken off a port in vain": func(sys *psn.System) {
			sys.Dissociate = func(uintptr) error { return nil }
		},
		"not taken off a port": func(sys *psn.System) {
			sys.Dissociate = func(uintptr) error { return unix.EINVAL }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sys := fakepsn.New(fakepsn.Quirks{}).System()
			change(sys)
			if err := psn.Probe(sys); err != nil {
				t.Fatal(err)
			}
			if sys.Receives {
				t.Fatal("the kernel may receive")
			}
			byReadiness(t, open(t, sys))
		})
	}
}

type lazy struct {
	psn.Overlapped
	started bool
}

func (l lazy) Start(uintptr, []byte) (bool, error) { return l.started, nil }

type stubborn struct{ psn.Overlapped }

func (stubborn) Cancel(uintptr) {}

type whole struct{ psn.Overlapped }

func (w whole) Result(handle uintptr) (int, bool, error) {
	n, _, err := w.Overlapped.Result(handle)
	return n, false, err
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
			time.Sleep(time.Duration(round) * 10 * time.Microsecond)
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
