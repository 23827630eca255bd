package engine

import (
	"errors"
	"log/slog"
	"time"

	"github.com/socknotify/socknotify"
)

// A Failing is a series of failed attempts of one worker. The zero value is an empty series.
type Failing struct {
	since time.Time // the first attempt of the series
	pause time.Duration
}

const (
	// GiveUpAfter is the time after which a server whose calls of a port still fail gives up.
	GiveUpAfter = 5 * time.Second
	// The pause between two attempts doubles from firstPause to longestPause.
	firstPause   = time.Millisecond
	longestPause = Tick
)

// The messages of Again.
const (
	CannotWait   = "cannot wait for notifications, trying again"
	CannotAccept = "cannot accept, trying again"
)

// Again logs a failure, pauses before the next attempt, and returns for how long the series has
// lasted.
//
// Each call of Process dequeues the notifications that exist before it waits. So a server whose
// waits fail still serves, with the delay of these pauses.
func (f *Failing) Again(j *Journal, message string, err error) (lasted time.Duration) {
	now := time.Now()
	if f.since.IsZero() {
		f.since, f.pause = now, firstPause
	}
	j.Log(slog.LevelWarn, message, "err", err, "retry_in", f.pause)
	time.Sleep(f.pause)
	f.pause = min(2*f.pause, longestPause)
	return now.Sub(f.since)
}

// RefusedBySystem reports whether the Result of a registration is a refusal by the system that may
// be temporary, such as a limit. Other failures mean that the socket or the port is closed.
func RefusedBySystem(err error) bool {
	var e *socknotify.OpError
	return errors.As(err, &e) && e.Kind == nil
}
