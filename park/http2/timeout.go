package http2

import (
	"os"
	"time"

	"golang.org/x/net/http2"
)

// A handlerTimeout is a timeout of a stream whose handler runs.
type handlerTimeout uint8

const (
	// reads makes Read fail when it has returned what has arrived, unless that is the whole body.
	reads handlerTimeout = iota
	// writes resets the stream, so that Write fails.
	writes
)

// startTimer begins a timeout. The caller holds c.mu.
func (st *stream) startTimer(t handlerTimeout, d time.Duration) {
	st.timers[t] = time.AfterFunc(d, func() {
		st.c.mu.Lock()
		defer st.c.mu.Unlock()
		st.timeOut(t)
	})
}

// timeOut is called at the end of a timeout. The caller holds c.mu.
func (st *stream) timeOut(t handlerTimeout) {
	switch {
	case t == reads && !st.gotEnd && st.bodyErr == nil:
		st.bodyErr = os.ErrDeadlineExceeded
		st.bodyClosed = true
		st.wake()
	case t == writes && st.holder == heldByHandler:
		st.reset(http2.ErrCodeInternal, errWriteTimeout)
		st.c.startWriting()
	}
}

// setDeadline sets the time of a timeout, for http.ResponseController.
func (st *stream) setDeadline(t handlerTimeout, at time.Time) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.holder != heldByHandler {
		return
	}
	if st.timers[t] != nil {
		st.timers[t].Stop()
		st.timers[t] = nil
	}
	switch d := time.Until(at); {
	case at.IsZero(), st.err != nil:
	case d > 0:
		st.startTimer(t, d)
	default:
		st.timeOut(t)
	}
}

// stopTimers ends the timeouts of the handler. The caller holds c.mu.
func (st *stream) stopTimers() {
	for _, t := range st.timers {
		if t != nil {
			t.Stop()
		}
	}
}
