package conformance_test

import (
	"slices"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/conformance"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// TestConformance runs every sentence on every backend: TestConformance/<backend>-<sentence>/<case>.
func TestConformance(t *testing.T) {
	backends := backendtest.Names(t)
	if len(backends) == 0 {
		t.Skip("no backend for this system")
	}
	for _, backend := range backends {
		factory := func(tb testing.TB) *socknotify.Port[any] {
			tb.Helper()
			p, err := socknotify.New[any](backendtest.Counted(backend))
			if err != nil {
				tb.Fatal(err)
			}
			return p
		}
		for _, sentence := range conformance.Sentences() {
			t.Run(backend+"-"+sentence, func(t *testing.T) {
				conformance.RunSentence(t, factory, sentence)
			})
		}
	}
}

// TestEverySentence makes sure that no sentence of the contract has lost its cases.
func TestEverySentence(t *testing.T) {
	want := []string{
		"P1", "P2", "P3", "P4", "P5",
		"C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8", "C9",
		"G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11", "G12",
		"T1", "T2", "T3", "T4", "T5", "T6", "T7",
		"E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9",
		"Q1", "Q2", "Q3", "Q4", "Q5",
		"O1", "O2", "O3", "O4", "O5", "O6", "O7", "O8", "O9", "O10", "O11", "O12", "O13", "O14",
		"O15",
		"X2", "X3", "X5", "X6", "X7",
	}
	if got := conformance.Sentences(); !slices.Equal(got, want) {
		t.Errorf("sentences with cases: %v; want %v", got, want)
	}
}
