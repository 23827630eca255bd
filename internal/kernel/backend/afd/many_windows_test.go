package afd

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// Sockets of several helper handles are removed while others remain.
func TestGroups(t *testing.T) {
	p := open(t)
	const n = 5*groupSize/2 + 3
	type conn struct{ a, b socket }
	conns := make([]conn, n)
	for i := range conns {
		conns[i].a, conns[i].b = pair(t)
		apply(t, p, backend.Add, conns[i].a, uint64(i), in)
	}
	if len(p.groups) != 3 {
		t.Errorf("%d groups for %d sockets", len(p.groups), n)
	}
	for round := range 3 {
		seen := map[uint64]bool{}
		for i := range conns {
			write(t, conns[i].b)
		}
		for range conns {
			r := await(t, p)
			if seen[r.Token] || r.Mask != backend.In {
				t.Fatalf("round %d: report %+v", round, r)
			}
			seen[r.Token] = true
			read(conns[r.Token].a)
			apply(t, p, backend.Set, conns[r.Token].a, r.Token, in)
		}
		runtime.GC()
	}
	for i := range conns {
		if i%3 == 0 {
			windows.Closesocket(conns[i].a)
		} else {
			apply(t, p, backend.Delete, conns[i].a, 0, 0)
		}
	}
	none(t, p)
	// Wine delivers the last packets late.
	eventually(t, "the last of the entries", func() bool {
		harvest(p)
		p.Has(0)
		return len(p.groups) == 1 && len(p.vacant) == 1 && p.groups[0].used == 0 && len(p.entries) == 0
	})
}

// Several goroutines harvest and enable, one of them parked, and all bytes are received.
func TestConcurrently(t *testing.T) {
	p := open(t)
	const n, each, workers = 40, 25, 4
	var conns [n]struct {
		a, b socket
		busy atomic.Bool
		got  atomic.Int32
	}
	for i := range conns {
		conns[i].a, conns[i].b = pair(t)
		apply(t, p, backend.Add, conns[i].a, uint64(i), in)
	}
	var total atomic.Int32
	var stop atomic.Bool
	var parked sync.Mutex
	var wg sync.WaitGroup
	worker := func() {
		defer wg.Done()
		ready := make([]backend.Ready, 3)
		var changes []backend.Change
		for !stop.Load() {
			k := p.Poll(changes, ready)
			for _, c := range changes {
				if c.Status != backend.Done {
					t.Errorf("Set: status %d, %v", c.Status, c.Err)
				}
			}
			changes = changes[:0]
			for _, r := range ready[:k] {
				c := &conns[r.Token]
				if !c.busy.CompareAndSwap(false, true) {
					t.Errorf("two reports of %d at once", r.Token)
				}
				got, _ := read(c.a)
				c.got.Add(int32(got))
				total.Add(int32(got))
				c.busy.Store(false)
				changes = append(changes, backend.Change{Handle: uintptr(c.a), Token: r.Token, Interest: in, Action: backend.Set})
			}
			if len(changes) == 0 && parked.TryLock() {
				if err := p.Park(time.Now().Add(20*time.Millisecond), func() bool { return false }); err != nil {
					t.Error(err)
				}
				parked.Unlock()
			}
		}
	}
	wg.Add(workers)
	for range workers {
		go worker()
	}
	for range each {
		for i := range conns {
			write(t, conns[i].b)
		}
	}
	eventually(t, "the last byte", func() bool { return total.Load() == n*each })
	stop.Store(true)
	p.Wake()
	wg.Wait()
	for i := range conns {
		if got := conns[i].got.Load(); got != each {
			t.Errorf("connection %d got %d bytes; want %d", i, got, each)
		}
	}
}

// All kinds of changes run concurrently with harvests, a parked goroutine and closing.
func TestConcurrentChanges(t *testing.T) {
	p := open(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	run := func(f func()) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				f()
			}
		}()
	}
	run(func() { harvest(p) })
	run(func() { p.Park(time.Now().Add(5*time.Millisecond), sleepOn) })
	run(func() { p.Wake(); testawait.Pause(3 * time.Millisecond) })
	var churn sync.WaitGroup
	for i := range 3 {
		next := func() socket {
			s, err := windows.Socket(windows.AF_INET, windows.SOCK_DGRAM, 0)
			if err == nil {
				err = windows.Bind(s, &windows.SockaddrInet4{Addr: loopback})
			}
			if err != nil {
				t.Error(err)
			}
			return s
		}
		if wine.DiesOfHalfMade.Here() {
			var made [40]socket
			for i := range made {
				made[i] = next()
			}
			left := made[:]
			next = func() (s socket) { s, left = left[0], left[1:]; return s }
		}
		churn.Add(1)
		go func() {
			defer churn.Done()
			for life := range uint64(40) {
				s := next()
				for step, action := range []backend.Action{backend.Add, backend.Set, backend.Suppress, backend.Set, backend.Delete, backend.Add} {
					interest := []backend.Mask{in, backend.Out, everything}[(int(life)+step)%3]
					if status, err := change(p, action, s, life, interest); status != backend.Done {
						t.Errorf("life %d, step %d: status %d, %v", life, step, status, err)
					}
				}
				if (int(life)+i)%2 == 0 {
					change(p, backend.Delete, s, 0, 0)
				}
				windows.Closesocket(s)
			}
		}()
	}
	churn.Wait()
	stop.Store(true)
	p.Wake()
	wg.Wait()
	harvest(p)
	none(t, p)
	if len(p.entries) != 0 {
		t.Errorf("%d entries are left", len(p.entries))
	}
}

// Pollers that are closed with outstanding polls leave no handle open.
func TestHandlesAreClosed(t *testing.T) {
	socks := make([]socket, 2*groupSize)
	for i := range socks {
		socks[i], _ = bound(t, windows.SOCK_DGRAM)
	}
	once := func() {
		k, err := New()
		if err != nil {
			t.Fatal(err)
		}
		p := k.(*Poller)
		for i, s := range socks {
			apply(t, p, backend.Add, s, uint64(i), everything)
		}
		harvest(p)
		for i, s := range socks[:groupSize] {
			apply(t, p, backend.Set, s, uint64(i), in)
		}
		p.PollOne(uintptr(socks[0]))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if p.out != 0 {
			t.Fatalf("the kernel kept %d blocks", p.out)
		}
	}
	once()
	before := handles(t)
	for range 10 {
		once()
	}
	// Threads that the runtime has started in between have handles too.
	if after := handles(t); after > before+8 {
		t.Errorf("%d handles before, %d after", before, after)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	p := open(t)
	a, b := pair(t)
	apply(t, p, backend.Add, a, 1, in)
	write(t, b)
	c := []backend.Change{{Handle: uintptr(a), Token: 1, Interest: in, Action: backend.Set}}
	ready := make([]backend.Ready, 1)
	until := time.Now().Add(time.Hour)
	if n := testing.AllocsPerRun(50, func() {
		if err := p.Park(until, sleepOn); err != nil {
			t.Error(err)
		}
		if p.Poll(nil, ready) != 1 {
			t.Error("no report")
		}
		p.Poll(c, nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSetAndHarvest(b *testing.B) {
	p := open(b)
	x, y := pair(b)
	apply(b, p, backend.Add, x, 1, in)
	write(b, y)
	c := []backend.Change{{Handle: uintptr(x), Token: 1, Interest: in, Action: backend.Set}}
	ready := make([]backend.Ready, 1)
	b.ReportAllocs()
	for b.Loop() {
		for p.Poll(nil, ready) != 1 {
		}
		p.Poll(c, nil)
	}
}
