package fdstate

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// descriptor returns a new descriptor, which is closed at the end of the test.
func descriptor(t *testing.T) uintptr {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if isOpen(uintptr(fd)) {
			unix.Close(fd)
		}
	})
	return uintptr(fd)
}

// isOpen reports whether h is an open descriptor. Nothing else opens descriptors during these tests, so the number
// of a closed descriptor is not reused.
func isOpen(h uintptr) bool {
	_, err := unix.FcntlInt(h, unix.F_GETFD, 0)
	return err == nil
}

// The steps of TestCallOrders.
const (
	opened     = "Open"
	notOpen    = "Open, refused"
	used       = "Use"
	notUsed    = "Use, refused"
	done       = "Done"
	closed     = "Close"
	closed2    = "Close, refused"
	lateUse    = "a Use that adds its reference after Close"
	lateDone   = "the Done of that Use"
	lateFinish = "finish, called late"
)

// In every order of the calls, the descriptor is open for exactly as long as there are references, and a closed FD
// can be opened again.
func TestCallOrders(t *testing.T) {
	type step struct {
		do    string
		alive bool // whether the latest descriptor is open after the step
	}
	for name, steps := range map[string][]step{
		"zero":                      {{notUsed, false}, {closed2, false}, {notUsed, false}, {opened, true}, {closed, false}},
		"close":                     {{opened, true}, {closed, false}, {closed2, false}, {notUsed, false}},
		"use between":               {{opened, true}, {used, true}, {done, true}, {closed, false}, {notUsed, false}},
		"close while used":          {{opened, true}, {used, true}, {closed, true}, {done, false}, {closed2, false}},
		"close while used by three": {{opened, true}, {used, true}, {used, true}, {used, true}, {closed, true}, {done, true}, {done, true}, {done, false}},
		"use after close": {
			{opened, true}, {used, true}, {closed, true}, {notUsed, true}, {closed2, true}, {notUsed, true}, {done, false}, {notUsed, false},
		},
		"open while open":   {{opened, true}, {notOpen, true}, {used, true}, {notOpen, true}, {done, true}, {closed, false}},
		"open while in use": {{opened, true}, {used, true}, {closed, true}, {notOpen, true}, {done, false}, {opened, true}, {closed, false}},
		"again": {
			{opened, true}, {closed, false}, {opened, true}, {used, true}, {closed, true}, {done, false}, {opened, true},
			{used, true}, {done, true}, {closed, false}, {closed2, false},
		},
		"a late use is the last":   {{opened, true}, {used, true}, {closed, true}, {lateUse, true}, {done, true}, {lateDone, false}},
		"a late use of a closed":   {{opened, true}, {closed, false}, {lateUse, false}, {lateDone, false}, {opened, true}, {closed, false}},
		"late across the opening":  {{opened, true}, {closed, false}, {lateUse, false}, {opened, true}, {lateDone, true}, {used, true}, {done, true}, {closed, false}},
		"late across two handles":  {{opened, true}, {closed, false}, {lateUse, false}, {opened, true}, {closed, true}, {lateDone, false}, {closed2, false}},
		"late finish":              {{opened, true}, {closed, false}, {opened, true}, {lateFinish, true}, {used, true}, {lateFinish, true}, {done, true}, {closed, false}},
		"late finish, never open":  {{lateFinish, false}, {opened, true}, {closed, false}},
		"late finish while in use": {{opened, true}, {used, true}, {closed, true}, {lateFinish, true}, {done, false}, {lateFinish, false}, {opened, true}, {closed, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var x FD
			var h uintptr
			for i, s := range steps {
				wrong := false
				switch s.do {
				case opened:
					h = descriptor(t)
					wrong = !x.Open(h)
				case notOpen:
					wrong = x.Open(descriptor(t))
				case used:
					got, ok := x.Use()
					wrong = !ok || got != h
				case notUsed:
					_, wrong = x.Use()
				case done, lateDone:
					x.Done()
				case closed:
					wrong = x.Close() != nil
				case closed2:
					wrong = !errors.Is(x.Close(), net.ErrClosed)
				case lateUse:
					x.refs.Add(1)
				case lateFinish:
					x.finish()
				}
				if wrong {
					t.Fatalf("step %d: unexpected result: %s", i, s.do)
				}
				if alive := h != 0 && isOpen(h); alive != s.alive {
					t.Fatalf("step %d, %s: the descriptor is open: %v", i, s.do, alive)
				}
				want := ^uintptr(0)
				if s.alive {
					want = h
				}
				if x.Closed() == s.alive {
					t.Fatalf("step %d, %s: Closed = %v", i, s.do, x.Closed())
				}
				if x.Handle() != want {
					t.Fatalf("step %d, %s: Handle = %d, want %d", i, s.do, x.Handle(), want)
				}
			}
		})
	}
}

func TestCloseFails(t *testing.T) {
	var x FD
	h := descriptor(t)
	x.Open(h)
	unix.Close(int(h)) // makes Close fail
	if err := x.Close(); err != unix.EBADF {
		t.Errorf("Close = %v", err)
	}
	if err := x.Close(); err != net.ErrClosed {
		t.Errorf("a second Close = %v", err)
	}
	if !x.Open(descriptor(t)) || x.Close() != nil {
		t.Error("the FD cannot be opened again")
	}
}

// Exactly one of several concurrent Closes succeeds, and the descriptor is closed when all references are released.
func TestConcurrentClose(t *testing.T) {
	for range 200 {
		var x FD
		h := descriptor(t)
		x.Open(h)
		var ok atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if _, got := x.Use(); got {
					defer x.Done()
				}
				switch err := x.Close(); err {
				case nil:
					ok.Add(1)
				case net.ErrClosed:
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if ok.Load() != 1 || isOpen(h) {
			t.Fatalf("%d Closes succeeded, open: %v", ok.Load(), isOpen(h))
		}
	}
}

// While an FD is opened and closed repeatedly, concurrent uses never get a closed descriptor, and references to
// former handles do not close the current one.
func TestConcurrentReopen(t *testing.T) {
	var x FD
	var stop atomic.Bool
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for !stop.Load() {
				if h, ok := x.Use(); ok {
					if !isOpen(h) {
						t.Error("Use returned a closed descriptor")
						stop.Store(true)
					}
					x.Done()
				}
			}
		})
	}
	for range 3000 {
		h, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		for !x.Open(uintptr(h)) {
			if stop.Load() {
				unix.Close(h)
				t.FailNow()
			}
		}
		if err := x.Close(); err != nil {
			t.Errorf("Close of an open FD = %v", err)
			break
		}
	}
	stop.Store(true)
	all.Wait()
	if x.Handle() != ^uintptr(0) {
		t.Error("the FD is still open")
	}
}
