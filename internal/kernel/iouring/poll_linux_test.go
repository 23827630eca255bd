package iouring

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// More sockets become ready at once than completions fit: the kernel ends the polls of the rest, which are
// made anew, and nothing is lost.
func TestMoreCompletionsThanRoom(t *testing.T) {
	p := newPoller(t, 128)
	const n = 400
	var in, out [n]int
	for i := range n {
		in[i], out[i] = pair(t)
		do(t, p, kernel.Add, in[i], uint64(i))
	}
	for round := range 5 {
		for i := range n {
			send(t, out[i])
		}
		seen := map[uint64]bool{}
		eventually(t, "a report of each", func() bool {
			for _, r := range reports(p) {
				if r.Mask&kernel.In == 0 {
					t.Fatalf("round %d: %+v", round, r)
				}
				seen[r.Token] = true
			}
			return len(seen) == n
		})
		for i := range n {
			drain(in[i])
		}
		if r := reports(p); len(r) != 0 {
			t.Fatalf("round %d: drained, and still %+v", round, r)
		}
	}
}

// A thread that ends takes the polls that it made with it. They are made anew.
func TestThreadEnds(t *testing.T) {
	p := newPoller(t, 256)
	a, b := pair(t)
	done := make(chan int)
	tid := unix.Getpid() // the first thread, which Go does not end
	for tid == unix.Getpid() {
		go func() {
			runtime.LockOSThread() // and ends with the goroutine
			if id := unix.Gettid(); id != unix.Getpid() {
				do(t, p, kernel.Add, a, 1)
			}
			done <- unix.Gettid()
		}()
		tid = <-done
	}
	eventually(t, "the thread ends", func() bool { return unix.Tgkill(unix.Getpid(), tid, 0) == unix.ESRCH })
	reports(p)
	for range 3 {
		send(t, b)
		eventually(t, "a report", func() bool { r := reports(p); return len(r) == 1 && r[0].Token == 1 })
		drain(a)
	}
	reports(p)
	for _, th := range p.threads {
		if th.id == int32(tid) && !th.dead {
			t.Error("the thread that ended is still waited for")
		}
	}
}

// What other threads have in hand is there after Settle, however long they sleep.
func TestSettleFetchesFromOtherThreads(t *testing.T) {
	p := newPoller(t, 256)
	const n = 4
	stop := make(chan struct{})
	var in, out [n]int
	ready := make(chan struct{})
	for i := range n {
		in[i], out[i] = pair(t)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			do(t, p, kernel.Add, in[i], uint64(i))
			ready <- struct{}{}
			<-stop
		}()
		<-ready
	}
	defer close(stop)
	for range 200 {
		for i := range n {
			send(t, out[i])
		}
		if r := reports(p); len(r) != n {
			t.Fatalf("%d reports; want %d", len(r), n)
		}
		for i := range n {
			drain(in[i])
		}
	}
}

// A poll moves to the thread that takes its reports, and tells nothing twice for that.
func TestPollMovesToTheHarvester(t *testing.T) {
	p := newPoller(t, 256)
	a, b := pair(t)
	stop, ready := make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		do(t, p, kernel.Add, a, 1)
		close(ready)
		<-stop
	}()
	<-ready
	defer close(stop)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range 20 {
		send(t, b)
		if r := reports(p); len(r) != 1 || r[0].Token != 1 {
			t.Fatalf("round %d: %+v", i, r)
		}
		// What was told still holds.
		if r := reports(p); len(r) != 0 {
			t.Fatalf("round %d: told again: %+v", i, r)
		}
		drain(a)
	}
	if th := p.threads[p.lookup(a).thread]; th.id != gettid() {
		t.Errorf("the poll is thread %d's; want %d", th.id, gettid())
	}
}

// The ring lets go of a socket at a Delete, and at a Mute.
func TestSocketIsLetGo(t *testing.T) {
	p := newPoller(t, 256)
	for _, action := range []kernel.Action{kernel.Delete, kernel.Mute} {
		a, b := pair(t)
		do(t, p, kernel.Add, a, 1)
		do(t, p, action, a, 2)
		unix.Close(a)
		eventually(t, "the peer hears of the close", func() bool { return hungUp(b) })
		if c, _ := pair(t); c != a {
			unix.Close(c)
		}
	}
}

// A socket that is closed without a Delete is found and let go of: by whoever parks, and by whoever
// harvests and never finds nothing.
func TestClosedSocketIsFound(t *testing.T) {
	p := newPoller(t, 256)
	a, b := pair(t)
	do(t, p, kernel.Add, a, 1)
	unix.Close(a)
	var end atomic.Bool
	parked := make(chan error)
	go func() {
		var err error
		for err == nil && !end.Load() {
			// It may return early, and does when a poll was ended; then somebody looks.
			err = p.Park(time.Time{}, func() bool { reports(p); return end.Load() })
		}
		parked <- err
	}()
	eventually(t, "the peer hears of the close", func() bool { return hungUp(b) })

	// Registered while somebody is parked who had nothing to look after.
	c, d := pair(t)
	do(t, p, kernel.Add, c, 2)
	unix.Close(c)
	eventually(t, "the peer hears of that one too", func() bool { return hungUp(d) })
	end.Store(true)
	p.Wake()
	if err := <-parked; err != nil {
		t.Fatal(err)
	}

	e, f := pair(t)
	g, h := pair(t)
	do(t, p, kernel.Add, e, 3)
	do(t, p, kernel.Add, g, 4)
	unix.Close(e)
	for i := 0; !hungUp(f); i++ {
		if i > 1e6 {
			t.Fatal("the port is busy, and the socket stays open")
		}
		send(t, h)
		drain(g)
		var some [4]kernel.Ready
		p.Poll(nil, some[:])
	}
}

// What a closed socket's peer does is nobody's news, and neither is it the next socket's of that number.
func TestClosedSocketIsSilent(t *testing.T) {
	p := newPoller(t, 256)
	a, b := pair(t)
	do(t, p, kernel.Add, a, 1)
	c, d := pair(t)
	send(t, d)
	if err := unix.Dup2(c, a); err != nil { // it has something to receive, but is not watched
		t.Fatal(err)
	}
	send(t, b)
	if r := reports(p); len(r) != 0 {
		t.Fatalf("reports %+v", r)
	}
	eventually(t, "the peer hears of the close", func() bool { reports(p); return hungUp(b) })
}

// Changing and harvesting allocate nothing.
func TestNothingIsAllocated(t *testing.T) {
	p := newPoller(t, 256)
	a, b := pair(t)
	do(t, p, kernel.Add, a, 1)
	var some [4]kernel.Ready
	turn := func() {
		send(t, b)
		for p.Poll(nil, some[:]) == 0 {
			p.Settle()
		}
		drain(a)
		do(t, p, kernel.Set, a, 1)
	}
	turn()
	c := [1]kernel.Change{{Handle: uintptr(a), Interest: kernel.In}}
	x, buf := []byte("x"), make([]byte, 8)
	if n := testing.AllocsPerRun(200, func() {
		unix.Write(b, x)
		for p.Poll(nil, some[:]) == 0 {
			p.Settle()
		}
		unix.Read(a, buf)
		c[0].Action = kernel.Set
		p.Poll(c[:], nil)
	}); n != 0 {
		t.Errorf("%v allocations each time", n)
	}
}
