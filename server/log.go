package server

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"
	"runtime/pprof"

	"github.com/socknotify/socknotify/internal/serving"
)

// A journal is the log of a server, and its label in profiles.
type journal struct {
	lines  serving.Log
	labels context.Context // of package pprof; nil if the server has no name
}

// open prepares the journal. A nil logger is slog.Default().
func (j *journal) open(logger *slog.Logger, name string) {
	j.lines.Name = name
	j.lines.Logger = func() *slog.Logger { return logger }
	if name != "" {
		j.labels = pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name))
	}
}

// log logs at most ten lines of a message in a second.
func (j *journal) log(level slog.Level, msg string, args ...any) { j.lines.Log(level, msg, args...) }

// panicked counts and logs a panic, and returns it as an error. It is called by the goroutine that
// has panicked, so that the stack shows where. A nil value means that the goroutine has ended by
// runtime.Goexit, because recover returns another value for panic(nil).
func (j *journal) panicked(msg string, value any, remote net.Addr) *PanicError {
	if value == nil {
		value = "runtime.Goexit was called"
	}
	e := &PanicError{Value: value, Stack: debug.Stack()}
	j.lines.Panic(msg, e, "remote", nameOfPeer(remote))
	return e
}

// guard calls a function of the user that must not end the goroutine by a panic.
func (j *journal) guard(msg string, f func() error) {
	if p := serving.Try(func() { f() }); p != nil {
		j.lines.Panic(msg, p, "remote", nameOfPeer(nil))
	}
}

// label gives the calling goroutine the server's label in profiles, if the server has a name.
func (j *journal) label() {
	if j.labels != nil {
		pprof.SetGoroutineLabels(j.labels)
	}
}

// nameOfPeer returns an address for the log. It is nil if the peer reset the connection before the
// server asked the system for the address, or if no peer is concerned.
func nameOfPeer(a net.Addr) string {
	if a == nil {
		return "unknown"
	}
	return a.String()
}
