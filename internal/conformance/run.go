package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/handles"
	"github.com/socknotify/socknotify/internal/leaks"
)

// A Factory makes one port. The suite closes it.
type Factory func(tb testing.TB) *socknotify.Port[any]

// A check is one case of a sentence. It runs with handles and with tied sockets, unless it is about the
// latter alone.
type check struct {
	sentence, name string
	run            func(e *env)
	ofSocks        bool
}

// both makes a check.
func both(sentence, name string, run func(e *env)) check {
	return check{sentence: sentence, name: name, run: run}
}

// ofSocks makes a check that is about tied sockets alone.
func ofSocks(sentence, name string, run func(e *env)) check {
	return check{sentence: sentence, name: name, run: run, ofSocks: true}
}

// checks are all cases, sentence by sentence.
var checks = slices.Concat(
	portChecks, closeChecks, claimChecks,
	processChecks, timeoutChecks, allocChecks, memoryChecks, contextChecks,
	enableChecks, disableChecks, removeChecks, invalidChecks, reuseChecks, dupChecks, identityChecks,
	levelChecks, edgeChecks, oneShotChecks,
	readyChecks, hangupChecks, errorChecks, connectChecks, mptcpChecks, standingChecks,
	postChecks, balanceChecks, deregisterChecks,
	operationChecks, operationEndChecks, operationBatchChecks, operationPoolChecks, fileChecks,
	connChecks, acceptChecks, drainedChecks, sockChecks, statsChecks, snapshotChecks,
)

// Sentences names the sentences of the contract that have cases, in the contract's order.
func Sentences() []string {
	var names []string
	for _, c := range checks {
		if !slices.Contains(names, c.sentence) {
			names = append(names, c.sentence)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		const order = "PCGTEQOX"
		if d := strings.Index(order, a[:1]) - strings.Index(order, b[:1]); d != 0 {
			return d
		}
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return names
}

// Run tests the ports that the factory makes. Each case is a subtest Conformance/<sentence>/<case>.
func Run(t *testing.T, factory Factory) {
	t.Run("Conformance", func(t *testing.T) {
		for _, sentence := range Sentences() {
			t.Run(sentence, func(t *testing.T) { RunSentence(t, factory, sentence) })
		}
	})
}

// RunSentence runs the cases of one sentence as subtests of t.
func RunSentence(t *testing.T, factory Factory, sentence string) {
	warmUp(t, factory)
	for _, c := range checks {
		if c.sentence == sentence {
			c.in(t, factory)
		}
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
	if !c.ofSocks {
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

func (c check) with(t *testing.T, name string, factory Factory, tied bool) {
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
		c.run(&env{T: t, sentence: c.sentence, factory: factory, tied: tied})
	})
}
