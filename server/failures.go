package server

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// A failing is a row of one worker's attempts that failed. The zero value is an empty row.
type failing struct {
	since time.Time // the first of the row
	pause time.Duration
}

const (
	// patient is how long a call of a port may go on failing until the server gives up.
	giveUpAfter = 5 * time.Second
	// Between two attempts there is a pause, which grows.
	firstPause   = time.Millisecond
	longestPause = tick
)

// again pauses before the next attempt, and reports whether the row has lasted for longer than limit.
//
// A port that cannot be waited on can still be asked: each call of Process takes what there is before it waits. So a
// server whose attempts are this far apart goes on serving, later.
func (f *failing) again(limit time.Duration) (hopeless bool) {
	now := time.Now()
	if f.since.IsZero() {
		f.since, f.pause = now, firstPause
	}
	time.Sleep(f.pause)
	f.pause = min(2*f.pause, longestPause)
	return now.Sub(f.since) >= limit
}

// A oncePerSecond lets through one event a second.
type oncePerSecond struct{ at atomic.Int64 }

func (s *oncePerSecond) now() bool {
	now := time.Now().Unix()
	return s.at.Swap(now) != now
}

// refusedBySystem reports whether the Result of a registration is a refusal that may pass, such as a limit. Any other
// failure is about the socket or the port, which is closed.
func refusedBySystem(err error) bool {
	var e *socknotify.OpError
	return errors.As(err, &e) && e.Kind == nil
}
