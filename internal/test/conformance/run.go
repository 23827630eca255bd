package conformance

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

// A Factory makes one port. The suite closes it.
type Factory func(tb testing.TB) *socknotify.Port[any]

// RunSentence runs the cases of one sentence as subtests of t.
func RunSentence(t *testing.T, factory Factory, sentence string) {
	warmUp(t, factory)
	checks, err := checksOf(sentence)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		c.in(t, factory)
	}
}

// warmUp makes the process open what it keeps open, such as the runtime's own poller, and skips
// where there are no ports at all.
func warmUp(t *testing.T, factory Factory) {
	if len(socknotify.Backends()) == 0 {
		t.Skip("no ports on this system")
	}
	p := factory(t)
	p.Process(nil, make([]socknotify.Notification[any], 1), time.Millisecond)
	if err := p.Close(); err != nil {
		t.Fatalf("closing a new port: %v", err)
	}
}

// in runs a case, and then looks for what it left behind.
func (c check) in(t *testing.T, factory Factory) {
	if !c.sockOnly {
		c.with(t, c.name, factory, false)
	}
	c.with(t, c.name+"/BySock", factory, true)
}

// backendOf names the backend of a factory's ports.
func backendOf(t *testing.T, factory Factory) string {
	p := factory(t)
	defer p.Close()
	return p.Backend()
}

func (c check) with(t *testing.T, name string, factory Factory, bySock bool) {
	t.Run(name, func(t *testing.T) {
		if why := absent(c.sentence+"/"+c.name, func() string { return backendOf(t, factory) }); why != "" {
			t.Skip(why)
		}
		goroutines := goleak.IgnoreCurrent()
		before := handles.List()
		// Registered first, so run last.
		t.Cleanup(func() {
			if t.Failed() || t.Skipped() {
				return
			}
			if err := leaks.Find(goroutines); err != nil {
				t.Errorf("%s: goroutines left behind: %v", c.sentence, err)
			}
			handles.Settle(t, before, limit)
		})
		c.run(&env{T: t, sentence: c.sentence, factory: factory, tied: bySock})
	})
}
