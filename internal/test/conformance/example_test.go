package conformance_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/conformance"
)

// The test of a kernel of one's own: of all sentences.
func ExampleRun() {
	_ = func(t *testing.T) { // TestMine
		conformance.Run(t, func(tb testing.TB) *socknotify.Port[any] {
			port, err := socknotify.New[any](socknotify.WithBackend("mine"))
			if err != nil {
				tb.Fatal(err)
			}
			return port
		})
	}
}

// Of one sentence, on each kernel of the system.
func ExampleRunSentence() {
	_ = func(t *testing.T) { // TestRemoval
		for _, backend := range socknotify.Backends() {
			t.Run(backend, func(t *testing.T) {
				conformance.RunSentence(t, func(tb testing.TB) *socknotify.Port[any] {
					port, err := socknotify.New[any](socknotify.WithBackend(backend))
					if err != nil {
						tb.Fatal(err)
					}
					return port
				}, "G4")
			})
		}
	}
}

func ExampleSentences() {
	all := conformance.Sentences()
	fmt.Println(all[0], slices.Contains(all, "G4"))
	// Output: P1 true
}
