// Package engine has what the servers of streams and of datagrams share: checks of their options,
// their log, the waiting for the end of a served socket, the retries of a worker, and the watchdog
// that finds handlers that do not return.
//
//	watchdog.go  what workers do, and for how long
//	retry.go     calls that the system refuses
//	socket.go    a socket that is served
//	log.go       the log, and what recovers from panics
//	rate.go      limits in time
//	options.go   options and their defaults
package engine

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
)

const (
	// Tick is the resolution of all times that a server measures.
	Tick = 50 * time.Millisecond
	// MaxStuck is the number of workers that may take the places of others whose handlers do not
	// return, where MaxRunning says nothing else.
	MaxStuck = 512
)

// OneShot is the trigger of all registrations of servers.
const OneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

// ErrServerClosed and the others are those of package server.
var (
	ErrServerClosed error = serving.ClosedError("server: closed")
	ErrNoSocket           = Invalid("listener or socket is nil")
	ErrNoContext          = Invalid("context is nil")
)

// Limit returns a limit where a negative number means none, and 0 the default.
func Limit(n, byDefault int) int {
	if n < 0 {
		return math.MaxInt
	}
	return cmp.Or(n, byDefault)
}

// Timeout returns a timeout where a negative time means none, and 0 the default.
func Timeout(d time.Duration) time.Duration { return serving.Or(d, serving.DefaultTimeout) }

// CheckNumber returns an error that names an option that is a number and out of range.
func CheckNumber(name string, n, most int) error {
	switch {
	case n < 0:
		return Invalid("%s must not be negative, got %d", name, n)
	case n > most:
		return Invalid("%s must be at most %d, got %d", name, most, n)
	}
	return nil
}

// Invalid returns an error that matches socknotify.ErrInvalid.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("server: %w: %s", socknotify.ErrInvalid, fmt.Sprintf(format, args...))
}

// Elapsed returns the time since the program started.
func Elapsed() time.Duration { return time.Since(epoch) }

var epoch = time.Now()
