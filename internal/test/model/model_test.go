//go:build unix || windows

package model

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

var (
	waitersFlag = flag.String("model.waiters", "0,2,16", "numbers of goroutines that dequeue beside the sequence, 0 for exact checks")
	stepsFlag   = flag.Int("model.steps", 80, "the longest sequence, about")
	roundsFlag  = flag.Int("model.rounds", 3, "how many times rapid is run")
)

func TestMain(m *testing.M) {
	// A failure prints its sequence; a file beside the code would be one more.
	_ = flag.Set("rapid.nofailfile", "true")
	flag.Parse()
	// The runtime's own poller opens descriptors once.
	newWorld("").close()
	leaks.Main(m)
}

// TestModel runs random sequences.
func TestModel(t *testing.T) {
	for _, backend := range backendtest.Names(t) {
		t.Run(backend, func(t *testing.T) {
			for _, field := range strings.Split(*waitersFlag, ",") {
				n, err := strconv.Atoi(field)
				if err != nil {
					t.Fatal(err)
				}
				t.Run(fmt.Sprintf("waiters=%d", n), func(t *testing.T) {
					defer shrinking.Store(false)
					before := handles.List()
					for range *roundsFlag {
						rapid.Check(t, func(t *rapid.T) {
							runChecked(t, backend, n, genOps.Draw(t, "ops"))
						})
					}
					handles.Settle(t, before, patience())
				})
			}
		})
	}
}

type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

// runChecked runs a sequence and reports what was wrong, with the sequence as Go.
func runChecked(t testingT, backend string, waiting int, ops []Op) {
	t.Helper()
	var before []string
	if countEach {
		before = handles.List()
	}
	if why := run(backend, waiting, ops); why != "" {
		shrinking.Store(true)
		t.Fatalf("%s, %d waiters: %s\n%s", backend, waiting, why, literal(ops))
	}
	if countEach {
		handles.Settle(t, before, patience())
	}
}
