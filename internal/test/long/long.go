// Package long is for tests that take long. The test command of README runs the tests with -short,
// and everything with -long.
package long

import "testing"

// Only skips a test with -short. why says what the test costs, and is printed at the end of the test
// command.
func Only(tb testing.TB, why string) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("long: " + why)
	}
}

// Or returns all, or with -short few: how often a test repeats something, or how long it goes on.
func Or[T any](all, few T) T {
	if testing.Short() {
		return few
	}
	return all
}
