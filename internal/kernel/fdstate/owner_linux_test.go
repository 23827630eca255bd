package fdstate

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// newOwner returns an Owner that logs its calls.
func newOwner(t *testing.T, name string, log *[]string) *Owner {
	return &Owner{
		Closing: func(x *FD, h uintptr) {
			if !isOpen(h) {
				t.Errorf("%s: Closing(%d) after the handle was closed", name, h)
			}
			if _, ok := x.Use(); ok {
				t.Errorf("%s: Closing while Use succeeds", name)
			}
			if x.Closed() || x.Open(h) {
				t.Errorf("%s: Closing while Open succeeds", name)
			}
			*log = append(*log, fmt.Sprintf("%s closing %d", name, h))
		},
		Blocked: func(h uintptr, d Dir) { *log = append(*log, fmt.Sprintf("%s blocked %d %d", name, h, d)) },
	}
}

// Owner.Closing is called by Close, and again before the handle is closed if that is later. It is not called after
// that, nor for a later handle of the FD.
func TestOwnerClosing(t *testing.T) {
	for _, c := range []struct {
		name   string
		owners []string
		used   bool
	}{
		{"no owner", nil, false},
		{"no owner, in use", nil, true},
		{"at Close", []string{"a"}, false},
		{"at Close and the last Done", []string{"a"}, true},
		{"the latest", []string{"a", "b", "c"}, false},
		{"the same again", []string{"a", "a"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log, want []string
			owners := map[string]*Owner{}
			var x FD
			h := descriptor(t)
			x.Open(h)
			for _, name := range c.owners {
				if owners[name] == nil {
					owners[name] = newOwner(t, name, &log)
				}
				x.SetOwner(owners[name])
				want = []string{fmt.Sprintf("%s closing %d", name, h)}
			}
			if c.used {
				x.Use()
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(log, want) {
				t.Errorf("at Close: %q, want %q", log, want)
			}
			if c.used {
				x.Done()
				want = append(want, want...)
			}
			x.Close()
			x.Open(descriptor(t)) // without an owner
			x.Close()
			if !slices.Equal(log, want) {
				t.Errorf("%q, want %q", log, want)
			}
		})
	}
}

// The call of Owner.Closing holds a reference, so the handle stays open even if the last other reference is released
// concurrently. Otherwise the handle could belong to another socket when the owner uses it.
func TestClosingHoldsReference(t *testing.T) {
	var x FD
	calls := 0
	h := descriptor(t)
	x.Open(h)
	x.SetOwner(&Owner{Closing: func(*FD, uintptr) {
		if calls++; calls == 1 {
			x.Done()
		}
		if !isOpen(h) || x.Closed() {
			t.Error("the handle is closed during Closing")
		}
	}})
	x.Use()
	if err := x.Close(); err != nil || calls != 2 || isOpen(h) || !x.Closed() {
		t.Errorf("%v, Closing called %d times, open: %v", err, calls, isOpen(h))
	}
}

// After Suppressed, Owner.Blocked is called once when a call in one of the directions would block.
func TestSuppressed(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps string // r, s: Suppressed; b: both directions; R, S: Blocked; o: SetOwner; c: close and open again
		want  string
	}{
		{"not suppressed", "oRSRS", ""},
		{"once", "orRR", "1"},
		{"once for each time", "orRRrRR", "11"},
		{"suppressed twice", "orrRR", "1"},
		{"the other direction", "orSS", ""},
		{"sending", "osRS", "2"},
		{"both, one by one", "obRRSS", "12"},
		{"both, in between", "orRsSR", "12"},
		{"an owner that is set later", "rRoR", "1"},
		{"a former handle", "orcoR", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var x FD
			var got string
			h := descriptor(t)
			x.Open(h)
			o := &Owner{
				Closing: func(*FD, uintptr) {},
				Blocked: func(of uintptr, d Dir) {
					if of != h {
						t.Errorf("Blocked(%d), want %d", of, h)
					}
					got += fmt.Sprint(d)
				},
			}
			for _, s := range c.steps {
				switch s {
				case 'o':
					x.SetOwner(o)
				case 'r':
					x.Suppressed(Recv)
				case 's':
					x.Suppressed(Send)
				case 'b':
					x.Suppressed(Recv | Send)
				case 'R':
					x.Blocked(Recv, x.Generation())
				case 'S':
					x.Blocked(Send, x.Generation())
				case 'c':
					x.Close()
					h = descriptor(t)
					x.Open(h)
				}
			}
			x.Close()
			if got != c.want {
				t.Errorf("Blocked called with %q, want %q", got, c.want)
			}
		})
	}
}

// Concurrent calls of FD.Blocked call Owner.Blocked once per direction.
func TestConcurrentBlocked(t *testing.T) {
	for range 300 {
		var x FD
		var calls [4]atomic.Int32
		x.Open(descriptor(t))
		x.SetOwner(&Owner{Closing: func(*FD, uintptr) {}, Blocked: func(_ uintptr, d Dir) { calls[d].Add(1) }})
		x.Suppressed(Recv | Send)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { x.Blocked(Recv<<(i&1), x.Generation()) })
		}
		all.Wait()
		if calls[Recv].Load() != 1 || calls[Send].Load() != 1 {
			t.Fatalf("Owner.Blocked called %d and %d times", calls[Recv].Load(), calls[Send].Load())
		}
		x.Close()
	}
}

// Open resets the state of the former handle.
func TestReopenResetsState(t *testing.T) {
	var x FD
	for range 2 {
		x.Open(descriptor(t))
		if !ShortDrains(x.Generation()) {
			t.Error("the new handle has flags of a notification")
		}
		if x.Confirm(x.Advance(false, false)); x.Drained(Recv) || x.Drained(Send) {
			t.Error("the new handle is drained")
		}
		x.Blocked(Recv, x.Generation())
		x.Blocked(Send, x.Generation())
		if !x.Drained(Recv | Send) {
			t.Error("not drained")
		}
		x.Confirm(x.Advance(true, true))
		x.Close()
	}
}
