package main

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// The tests of packages below this one that need only what those export are one program, because
// linking a program takes longer than these tests.

func TestMain(m *testing.M) { leaks.Main(m) }

// Find waits for a goroutine that exits later than goleak would wait, and ignores a goroutine that
// was there before.
func TestFind(t *testing.T) {
	stop, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { <-stop }()
	defer close(stop)
	before := goleak.IgnoreCurrent()
	go func() {
		<-end
		close(ended)
	}()
	if err := goleak.Find(before); err == nil {
		t.Error("goleak finds no goroutine")
	}
	time.AfterFunc(time.Second, func() { close(end) }) // later than goleak waits, which has no clock
	if err := leaks.Find(before); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Find returned before the goroutine has exited")
	}
}

// Functions are called in the order of their due times, at those times, also those that a function
// starts.
func TestAdvance(t *testing.T) {
	c := testclock.New()
	began := c.Now()
	var got []time.Duration
	note := func() { got = append(got, c.Since(began)) }
	c.AfterFunc(3*time.Second, note)
	c.AfterFunc(time.Second, func() {
		note()
		c.AfterFunc(time.Second, note)
		c.AfterFunc(time.Hour, note)
	})
	stopped := c.AfterFunc(time.Second, note)
	later := c.AfterFunc(0, note)
	if !stopped.Stop() || stopped.Stop() || !later.Reset(4*time.Second) {
		t.Error("Stop or Reset misreports whether the timer was armed")
	}
	c.Advance(4 * time.Second)
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("called after %v, want %v", got, want)
	}
	if c.Timers() != 1 || c.Since(began) != 4*time.Second {
		t.Errorf("%d timers at %v", c.Timers(), c.Since(began))
	}
}

// The requests have names and texts of their own.
func TestRequests(t *testing.T) {
	all := httpcorpus.Requests()
	if len(all) < 300 {
		t.Errorf("%d requests, want at least 300", len(all))
	}
	names, texts := make(map[string]bool), make(map[string]string)
	for _, r := range all {
		if names[r.Name] {
			t.Errorf("the name %s is there twice", r.Name)
		}
		if other, ok := texts[r.Text]; ok {
			t.Errorf("%s has the text of %s", r.Name, other)
		}
		names[r.Name], texts[r.Text] = true, r.Name
	}
	t.Logf("%d requests", len(all))
}

type inner struct {
	Wait time.Duration
}

type config struct {
	Name    string
	Timeout time.Duration
	Inner   inner
	Pointer *inner
	Nil     *inner
	N       int64
	private time.Duration
}

// Each field is set in runs of its own, in which no other is, and all are set in another run.
func TestLongest(t *testing.T) {
	var mu sync.Mutex
	var got [][3]time.Duration
	t.Run("runs", func(t *testing.T) {
		durationtest.Longest(t, &config{Pointer: new(inner)}, func(t *testing.T, set func(*config)) {
			c := config{Timeout: 1, N: 2, private: 3}
			if set(&c); c.N != 2 || c.private != 3 || c.Nil != nil {
				t.Errorf("%+v", c)
			}
			if c.Pointer == nil {
				c.Pointer = new(inner)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, [3]time.Duration{c.Timeout, c.Inner.Wait, c.Pointer.Wait})
		})
	})
	const longest = math.MaxInt64
	for _, want := range [][3]time.Duration{
		{longest, 0, 0}, {longest - 1, 0, 0}, {1, longest, 0}, {1, longest - 1, 0},
		{1, 0, longest}, {1, 0, longest - 1}, {longest, longest, longest},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no run with %v", want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d runs", len(got))
	}
}
