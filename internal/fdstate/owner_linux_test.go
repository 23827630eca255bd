package fdstate

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// An owner that writes down what it is told.
func witness(t *testing.T, name string, log *[]string) *Owner {
	return &Owner{
		Closing: func(x *FD, h uintptr) {
			if !isOpen(h) {
				t.Errorf("%s hears of closing %d after it is closed", name, h)
			}
			if _, ok := x.Use(); ok {
				t.Errorf("%s hears of closing while others may use it", name)
			}
			if x.Closed() || x.Open(h) {
				t.Errorf("%s hears of closing while it may be opened again", name)
			}
			*log = append(*log, fmt.Sprintf("%s closing %d", name, h))
		},
		Blocked: func(h uintptr, d Dir) { *log = append(*log, fmt.Sprintf("%s blocked %d %d", name, h, d)) },
	}
}

// The owner hears of the closing at Close, again when it is closed where that is later, never after, and
// not of later lives.
func TestClosing(t *testing.T) {
	for _, c := range []struct {
		name   string
		owners []string
		used   bool
	}{
		{"nobody", nil, false},
		{"nobody, used", nil, true},
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
					owners[name] = witness(t, name, &log)
				}
				x.Own(owners[name])
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
			x.Open(descriptor(t)) // nobody's
			x.Close()
			if !slices.Equal(log, want) {
				t.Errorf("%q, want %q", log, want)
			}
		})
	}
}

// While the owner is told, the handle stays the fd's, even if the last other use is done meanwhile:
// otherwise the fd could be another socket's by the time that the owner acts on it.
func TestClosingIsAUse(t *testing.T) {
	var x FD
	told := 0
	h := descriptor(t)
	x.Open(h)
	x.Own(&Owner{Closing: func(*FD, uintptr) {
		if told++; told == 1 {
			x.Done()
		}
		if !isOpen(h) || x.Closed() {
			t.Error("it is closed under the owner")
		}
	}})
	x.Use()
	if err := x.Close(); err != nil || told != 2 || isOpen(h) || !x.Closed() {
		t.Errorf("%v, told %d times, open: %v", err, told, isOpen(h))
	}
}

// Who has Silenced directions is told once when a call in one of them would block.
func TestSilenced(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps string // r, s: Silenced; b: of both; R, S: Blocked; o: Own; c: closed and opened again
		want  string
	}{
		{"not asked", "oRSRS", ""},
		{"once", "orRR", "1"},
		{"once for each time", "orRRrRR", "11"},
		{"asked twice", "orrRR", "1"},
		{"the other direction", "orSS", ""},
		{"sending", "osRS", "2"},
		{"both, one by one", "obRRSS", "12"},
		{"both, in between", "orRsSR", "12"},
		{"an owner that comes later", "rRoR", "1"},
		{"a former life", "orcoR", ""},
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
						t.Errorf("told of %d, not %d", of, h)
					}
					got += fmt.Sprint(d)
				},
			}
			for _, s := range c.steps {
				switch s {
				case 'o':
					x.Own(o)
				case 'r':
					x.Silenced(Recv)
				case 's':
					x.Silenced(Send)
				case 'b':
					x.Silenced(Recv | Send)
				case 'R':
					x.Blocked(Recv, x.Turn())
				case 'S':
					x.Blocked(Send, x.Turn())
				case 'c':
					x.Close()
					h = descriptor(t)
					x.Open(h)
				}
			}
			x.Close()
			if got != c.want {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

// Calls that block at once tell once among them.
func TestSilencedIsToldOnceByMany(t *testing.T) {
	for range 300 {
		var x FD
		var told [4]atomic.Int32
		x.Open(descriptor(t))
		x.Own(&Owner{Closing: func(*FD, uintptr) {}, Blocked: func(_ uintptr, d Dir) { told[d].Add(1) }})
		x.Silenced(Recv | Send)
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { x.Blocked(Recv<<(i&1), x.Turn()) })
		}
		all.Wait()
		if told[Recv].Load() != 1 || told[Send].Load() != 1 {
			t.Fatalf("told %d and %d times", told[Recv].Load(), told[Send].Load())
		}
		x.Close()
	}
}

// What a former life left does not vouch for the next one.
func TestDrainedInAFormerLife(t *testing.T) {
	var x FD
	for range 2 {
		x.Open(descriptor(t))
		if !ShortBlocks(x.Turn()) {
			t.Error("a notification that nobody has made")
		}
		if x.Notified(x.Notify(false, false)); x.Drained(Recv) || x.Drained(Send) {
			t.Error("drained by nobody")
		}
		x.Blocked(Recv, x.Turn())
		x.Blocked(Send, x.Turn())
		if !x.Drained(Recv | Send) {
			t.Error("not drained")
		}
		x.Notified(x.Notify(true, true))
		x.Close()
	}
}
