package iouring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// submitted is how many submissions the kernel has taken.
func (p *Poller) submitted() int { return int(p.ring.sqHead.Load()) }

// Batches that are worth it are submitted, and the sockets are looked at.
func TestBatchIsSubmitted(t *testing.T) {
	p := newPoller(t, worthwhile)
	fds, peers := watched(t, p, 3*entries)
	for _, b := range peers {
		send(t, b)
	}
	reports(p)
	for _, c := range []struct{ changes, submitted int }{
		{1, 0}, {worthwhile - 1, 0}, {worthwhile, worthwhile}, {entries + worthwhile - 1, entries}, {3 * entries, 3 * entries},
	} {
		before := p.submitted()
		allDone(t, p, changes(kernel.Set, fds[:c.changes]))
		if n := p.submitted() - before; n != c.submitted {
			t.Errorf("%d changes: %d submitted; want %d", c.changes, n, c.submitted)
		}
		if r := reports(p); len(r) != c.changes {
			t.Errorf("%d changes: %d sockets reported", c.changes, len(r))
		}
	}
}

// Whatever is in a batch, it has the outcomes that epoll_ctl gives, and the reports that come of it.
func TestOutcomesAreEpolls(t *testing.T) {
	p, e := newPoller(t, 1), newEpoll(t)
	var fds []int
	for range 40 {
		a, b := pair(t)
		send(t, b)
		fds = append(fds, a)
	}
	closed, _ := pair(t)
	unix.Close(closed)
	file, err := unix.Open("/dev/zero", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(file) })
	odd := []int{closed, -1, 1 << 30, file}
	for range 500 {
		list := make([]kernel.Change, 1+rand.IntN(2*entries))
		for i := range list {
			fd := fds[rand.IntN(len(fds))]
			if rand.IntN(10) == 0 {
				fd = odd[rand.IntN(len(odd))]
			}
			list[i] = kernel.Change{Handle: uintptr(fd), Token: rand.Uint64(), Interest: kernel.In, Action: kernel.Action(rand.IntN(4))}
		}
		want := slices.Clone(list)
		e.Poll(want, nil)
		p.Poll(list, nil)
		for i := range want {
			if got, want := list[i], want[i]; got.Status != want.Status || !errors.Is(got.Err, want.Err) {
				t.Fatalf("change %d of %d, action %d of %d: status %d, %v; want %d, %v", i, len(list), want.Action,
					int(want.Handle), got.Status, got.Err, want.Status, want.Err)
			}
		}
		if got, want := reports(p), reports(e); !equal(got, want) {
			t.Fatalf("reports %v; want %v", got, want)
		}
	}
}

func equal(a, b map[uint64]int) bool {
	for token, n := range a {
		if b[token] != n {
			return false
		}
	}
	return len(a) == len(b)
}

// Changes of one socket are made in their order, and before Poll returns, even where the kernel cannot make them
// at once, because the epoll descriptor is in use.
func TestOrderUnderContention(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("one processor: nobody uses the descriptor meanwhile")
	}
	p := newPoller(t, 1)
	fds, _ := watched(t, p, 16)

	// Somebody looks at many sockets that always have something, with the descriptor locked.
	for i := range 500 {
		fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if err := unix.EpollCtl(p.Descriptor(), unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var looking sync.WaitGroup
	looking.Go(func() {
		for events := make([]unix.EpollEvent, 500); !stop.Load(); {
			unix.EpollWait(p.Descriptor(), events, 0)
		}
	})
	defer looking.Wait()
	defer stop.Store(true)

	const enough = 50
	for end := time.Now().Add(20 * time.Second); p.ring.awaits < enough; {
		if time.Now().After(end) {
			t.Fatalf("waited for the kernel %d times; want %d", p.ring.awaits, enough)
		}
		allDone(t, p, slices.Concat(changes(kernel.Mute, fds), changes(kernel.Set, fds), changes(kernel.Delete, fds),
			changes(kernel.Add, fds), changes(kernel.Mute, fds), changes(kernel.Delete, fds[:8])))
		for i, fd := range fds {
			if has, err := p.Has(uintptr(fd)); err != nil || has != (i >= 8) {
				t.Fatalf("socket %d: watched %t, %v", i, has, err)
			}
		}
		allDone(t, p, changes(kernel.Add, fds[:8]))
	}
}

// What the kernel takes no submission for is changed by epoll_ctl.
func TestKernelTakesLess(t *testing.T) {
	for _, takes := range []uint32{0, 1, 5, worthwhile} {
		p := newPoller(t, 1)
		fds, peers := watched(t, p, 2*worthwhile)
		for _, b := range peers {
			send(t, b)
		}
		reports(p)
		// The kernel sees so many of the entries that were filled in.
		own := p.ring.sqTail
		own.Store(p.ring.tail + takes)
		p.ring.sqTail = new(atomic.Uint32)
		before := p.submitted()
		list := slices.Concat(changes(kernel.Set, fds), changes(kernel.Set, []int{-1}))
		rest := p.batch(p.Descriptor(), list[:2*worthwhile])
		if n := p.submitted() - before; n != int(takes) || len(rest) != 2*worthwhile-n {
			t.Errorf("%d submitted, %d left; want %d submitted", n, len(rest), takes)
		}
		for i := range list[:takes] {
			if list[i].Status != kernel.Done {
				t.Errorf("change %d: %v", i, list[i].Err)
			}
		}
		p.Poll(list, nil)
		if r := reports(p); len(r) != len(fds) {
			t.Errorf("%d reports; want %d", len(r), len(fds))
		}
		p.ring.sqTail = own
	}
}

// A closed socket leaves by itself, and nobody holds it open.
func TestSocketIsNotHeld(t *testing.T) {
	p := newPoller(t, 1)
	fds, peers := watched(t, p, worthwhile)
	allDone(t, p, changes(kernel.Set, fds))
	for i, fd := range fds {
		unix.Close(fd)
		if n, err := unix.Read(peers[i], make([]byte, 1)); n != 0 || err != nil {
			t.Fatalf("the peer of a closed socket: %d, %v", n, err)
		}
	}
	if r := reports(p); len(r) != 0 {
		t.Errorf("reports %v of closed sockets", r)
	}
}

// Changing and harvesting allocate nothing.
func TestNothingIsAllocated(t *testing.T) {
	p := newPoller(t, worthwhile)
	fds, peers := watched(t, p, 2*worthwhile)
	for _, b := range peers {
		send(t, b)
	}
	list := changes(kernel.Set, fds)
	var some [4 * worthwhile]kernel.Ready
	if n := testing.AllocsPerRun(200, func() {
		p.Poll(list, nil)
		p.Poll(nil, some[:])
	}); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{8, 16, 32, 64} {
		for name, least := range map[string]int{"submitted": 1, "epoll_ctl": 1 << 30} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				if err := Probe(); err != nil {
					b.Skip(err)
				}
				p, err := open(least)
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				var fds []int
				for range n {
					s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
					if err != nil {
						b.Fatal(err)
					}
					defer unix.Close(s[0])
					defer unix.Close(s[1])
					fds = append(fds, s[0])
				}
				p.Poll(changes(kernel.Add, fds), nil)
				list := changes(kernel.Set, fds)
				for b.Loop() {
					p.Poll(list, nil)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/change")
			})
		}
	}
}
