package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// A port with strict edges keeps the sentences that its edges could break.
func TestStrictEdgeKeepsTheContract(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, sentence := range []string{"T2", "T3", "E3", "E5", "E7", "X5"} {
			t.Run(backend+"-"+sentence, func(t *testing.T) { RunSentence(t, edgePort(backend, true), sentence) })
		}
	})
}

func edgePort(backend string, strict bool) Factory {
	return func(tb testing.TB) *socknotify.Port[any] {
		tb.Helper()
		opts := []socknotify.Option{backendtest.Counted(backend)}
		if strict {
			opts = append(opts, socknotify.WithStrictEdge())
		}
		p, err := socknotify.New[any](opts...)
		if err != nil {
			tb.Fatal(err)
		}
		return p
	}
}

// The programs of testdata/strict/edge.txt hang on a strict port where they may hang on Windows,
// and on no other.
func TestStrictEdge(t *testing.T) {
	programs, err := parseFile("strict/edge")
	if err != nil {
		t.Fatal(err)
	}
	// Those are notified of an end of stream while there is data before it.
	ends := []string{"HangupUndrained", "EndUndrained", "EndAfterShortReceive"}
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, program := range programs {
			if wine.HidesEnd.Here() && slices.Contains(ends, program.name) {
				continue
			}
			for _, tied := range []bool{false, true} {
				for _, trigger := range []string{"edge", "edge|one-shot"} {
					for _, strict := range []bool{false, true} {
						name := fmt.Sprintf("tied=%t/%s/strict=%t", tied, trigger, strict)
						t.Run(backend+"/"+program.name+"/"+name, func(t *testing.T) {
							e := &env{T: t, sentence: "T2", factory: edgePort(backend, strict)}
							e.tied, e.trigger, e.strict = tied, trigger, strict
							if strict && kernelEdges(e.port()) {
								t.Error("a strict port says that its edges need no telling")
							}
							program.run(e)
						})
					}
				}
			}
		}
	})
}
