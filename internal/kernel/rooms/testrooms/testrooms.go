// Package testrooms lists the rooms that tests run on: those of the system, and the fake ones. Only tests
// import it.
package testrooms

import (
	"os"
	"testing"

	"github.com/socknotify/socknotify/internal/kernel/rooms"
)

// List returns the rooms, or the one that the environment asks for: SOCKNOTIFY_BACKEND, as everywhere.
func List(tb testing.TB) []rooms.Room {
	tb.Helper()
	list := append(rooms.List(), fakes()...)
	only := os.Getenv("SOCKNOTIFY_BACKEND")
	if only == "" {
		return list
	}
	for _, r := range list {
		if r.Name == only {
			return []rooms.Room{r}
		}
	}
	if r, ok := fake(only); ok {
		return []rooms.Room{r}
	}
	tb.Fatalf("SOCKNOTIFY_BACKEND=%s: there is no such room", only)
	return nil
}
