package epoll

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A subject is a Poller that watches an eventfd.
type subject struct {
	*Poller
	efd int
}

func newSubject(t testing.TB) subject {
	t.Helper()
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	efd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(efd) })
	c := []backend.Change{{Handle: uintptr(efd), Token: 1, Interest: backend.In, Action: backend.Add}}
	if k.Poll(c, nil); c[0].Status != backend.Done {
		t.Fatal(c[0].Err)
	}
	return subject{k.(*Poller), efd}
}

func (s subject) signal(t *testing.T) {
	if _, err := unix.Write(s.efd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Error(err)
	}
}

func (s subject) state() (attached, enabled bool) {
	s.bridge.mu.Lock()
	defer s.bridge.mu.Unlock()
	return s.bridge.attached, s.bridge.enabled
}

func (s subject) found() bool { return s.Poll(nil, make([]backend.Ready, 4)) > 0 }

// detach polls until the port is detached from the bridge.
func (s subject) detach(t *testing.T) {
	t.Helper()
	for range 2 * busy {
		s.found()
	}
	if attached, _ := s.state(); attached {
		t.Fatal("the port is still attached to the bridge")
	}
}

// many has the Poller watch n more descriptors, and returns a function that ends that.
func (s subject) many(t testing.TB, n int) (remove func()) {
	t.Helper()
	changes := make([]backend.Change, n)
	for i := range changes {
		fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		changes[i] = backend.Change{Handle: uintptr(fd), Token: uint64(2 + i), Action: backend.Add}
	}
	apply := func() {
		s.Poll(changes, nil)
		for _, c := range changes {
			if c.Status != backend.Done {
				t.Fatal(c.Err)
			}
		}
	}
	apply()
	return func() {
		for i := range changes {
			changes[i].Action = backend.Delete
		}
		apply()
		for _, c := range changes {
			unix.Close(int(c.Handle))
		}
	}
}

// A port with many sockets stays attached until it was busy for long, because attaching it again
// walks them all.
func TestNoDetachOfMany(t *testing.T) {
	s := newSubject(t)
	remove := s.many(t, 1000)
	for range 4 * busy {
		s.found()
	}
	if attached, _ := s.state(); !attached {
		t.Error("a port with many sockets was detached")
	}
	for range s.enough() {
		s.found()
	}
	if attached, _ := s.state(); attached {
		t.Error("a port that was busy for long is still attached")
	}
	remove()
	s.Park(time.Now(), func() bool { return false })
	s.detach(t)
}

// BenchmarkAttach measures what it costs to detach a port from its bridge and to attach it again. The
// number is that of its sockets.
func BenchmarkAttach(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := newSubject(b)
			defer s.many(b, n-1)()
			for b.Loop() {
				s.bridge.detach()
				if err := s.bridge.set(0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Park attaches a detached port again, so that an event wakes the waiter.
func TestParkAfterDetach(t *testing.T) {
	s := newSubject(t)
	for range 50 {
		s.detach(t)
		parked := make(chan bool)
		go func() {
			found := false
			for !found {
				if err := s.Park(time.Time{}, func() bool { found = s.found(); return found }); err != nil {
					t.Error(err)
				}
				found = found || s.found()
			}
			parked <- found
		}()
		await.Until(t, "a goroutine parks", func() bool { return s.Poller.bridge.parks.Load() > 0 })
		s.signal(t)
		if !<-parked {
			t.Fatal("not woken")
		}
		if attached, _ := s.state(); !attached {
			t.Fatal("parked while the port was detached")
		}
	}
}

// A port that parks after each event leaves the bridge as it is, and events wake it. One that is busy disables it.
func TestBridgeStaysEnabled(t *testing.T) {
	s := newSubject(t)
	calls := 0
	s.Poller.bridge.ctl = func(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno {
		calls++
		return ctl(epfd, op, fd, ev)
	}
	for range 100 {
		ended := make(chan error)
		go func() {
			var err error
			for found := false; err == nil && !found; found = found || s.found() { // an edge may be that of an earlier event
				err = s.Park(time.Time{}, func() bool { found = s.found(); return found })
			}
			s.found() // as a port does before it parks again
			ended <- err
		}()
		await.Until(t, "a goroutine is parked", func() bool {
			s.bridge.mu.Lock()
			defer s.bridge.mu.Unlock()
			return s.bridge.parked
		})
		s.signal(t)
		if err := await.Value(t, ended); err != nil {
			t.Fatal(err)
		}
	}
	if _, enabled := s.state(); !enabled || calls != 1 {
		t.Fatalf("enabled %v after %d calls of epoll_ctl", enabled, calls)
	}
	for range few {
		s.found()
	}
	if _, enabled := s.state(); enabled || calls != 2 {
		t.Errorf("enabled %v after %d calls of epoll_ctl, although the port is busy", enabled, calls)
	}
}

// detach leaves the port attached while a goroutine is parked.
func TestNoDetachWhileParked(t *testing.T) {
	s := newSubject(t)
	parked := make(chan error)
	go func() { parked <- s.Park(time.Time{}, func() bool { return false }) }()
	for open := false; !open; {
		_, open = s.state()
	}
	for range 4 * busy {
		s.found()
		s.bridge.detach()
	}
	if attached, _ := s.state(); !attached {
		t.Error("the port was detached while a goroutine was parked")
	}
	s.signal(t)
	if err := <-parked; err != nil {
		t.Error(err)
	}
}

// Signals, bursts of polls that are long enough to detach the port, and Parks run concurrently. Every signal is
// found.
func TestBridgeStress(t *testing.T) {
	s := newSubject(t)
	const signals = 3000
	var seen atomic.Int64
	stop := make(chan struct{})
	pollOnce := func() bool {
		if !s.found() {
			return false
		}
		seen.Add(1)
		return true
	}
	bursts, parker := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(bursts)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range busy + 8 {
				pollOnce()
			}
			await.Pause(50 * time.Microsecond)
		}
	}()
	go func() {
		defer close(parker)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Park(time.Time{}, pollOnce); err != nil {
				t.Error(err)
				return
			}
			pollOnce()
		}
	}()
	for i := range int64(signals) {
		s.signal(t)
		await.Until(t, fmt.Sprintf("signal %d", i), func() bool { return seen.Load() > i })
	}
	close(stop)
	s.Wake()
	<-bursts
	<-parker
}

// If the system refuses to watch one more descriptor, Park returns after a pause, so that the caller polls again.
func TestParkWatchLimit(t *testing.T) {
	for _, refusal := range []unix.Errno{unix.ENOSPC, unix.ENOMEM} {
		s := newSubject(t)
		s.detach(t)
		s.bridge.ctl = func(epfd, op, fd int, ev *unix.EpollEvent) unix.Errno {
			if op == unix.EPOLL_CTL_ADD {
				return refusal
			}
			return ctl(epfd, op, fd, ev)
		}
		never := func() bool { return false }
		began := time.Now()
		if err := s.Park(time.Time{}, never); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) < pauseTime {
			t.Error("Park returned without a pause")
		}
		if err := s.Park(time.Now().Add(-time.Second), never); err != nil {
			t.Fatal(err)
		}
		s.Wake()
		if err := s.Park(time.Time{}, never); err != nil {
			t.Fatal(err)
		}
		s.signal(t)
		for found := false; !found; {
			if err := s.Park(time.Time{}, func() bool { found = s.found(); return found }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Park returns any other error of epoll_ctl.
func TestParkRefused(t *testing.T) {
	s := newSubject(t)
	s.detach(t)
	s.bridge.ctl = func(int, int, int, *unix.EpollEvent) unix.Errno { return unix.EBADF }
	if err := s.Park(time.Time{}, func() bool { return false }); err == nil {
		t.Error("no error")
	}
}
