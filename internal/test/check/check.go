// Package check says in one line what a test cannot go on without.
package check

import (
	"errors"
	"testing"
)

func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func Is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

// Empty verifies that the channel is empty.
func Empty[T any](t testing.TB, c <-chan T) {
	t.Helper()
	select {
	case v := <-c:
		t.Fatalf("got %v, want nothing", v)
	default:
	}
}
