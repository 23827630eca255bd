package engine

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"runtime/pprof"

	"github.com/socknotify/socknotify/internal/serving"
)

// A Journal is the log of a server, and its label in profiles.
type Journal struct {
	Lines  serving.Log     // for its counts
	labels context.Context // of package pprof; nil if the server has no name
}

// Open prepares the journal. A nil logger is slog.Default().
func (j *Journal) Open(logger *slog.Logger, name string) {
	j.Lines.Name = name
	j.Lines.Logger = func() *slog.Logger { return logger }
	if name != "" {
		j.labels = pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name))
	}
}

// Log logs at most ten lines of a message in a second.
func (j *Journal) Log(level slog.Level, message string, args ...any) {
	j.Lines.Log(level, message, args...)
}

// Panicked counts and logs a panic, and returns it as an error. It is called by the goroutine that
// has panicked, so that the stack shows where. A nil value means that the goroutine has ended by
// runtime.Goexit, because recover returns another value for panic(nil).
func (j *Journal) Panicked(msg string, value any, remote net.Addr) *serving.PanicError {
	if value == nil {
		value = "runtime.Goexit was called"
	}
	e := &serving.PanicError{Value: value, Stack: debug.Stack()}
	j.Lines.Panic(msg, e, "remote", NameOfPeer(remote))
	return e
}

// Guard calls a function of the user that must not end the goroutine by a panic.
func (j *Journal) Guard(msg string, f func() error) {
	if p := serving.Try(func() { f() }); p != nil {
		j.Lines.Panic(msg, p, "remote", NameOfPeer(nil))
	}
}

// Label gives the calling goroutine the server's label in profiles, if the server has a name.
func (j *Journal) Label() {
	if j.labels != nil {
		pprof.SetGoroutineLabels(j.labels)
	}
}

// NameOfPeer returns an address for the log. It is nil if the peer reset the connection before the
// server asked the system for the address, or if no peer is concerned.
func NameOfPeer(a net.Addr) string {
	if a == nil {
		return "unknown"
	}
	return a.String()
}
