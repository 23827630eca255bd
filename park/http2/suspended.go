package http2

import (
	"net/http"
	"time"

	"github.com/socknotify/socknotify/internal/muxed"
)

// A wait is what a stream has whose request waits without a handler. Its fields are protected by
// conn.mu.
type wait struct {
	waits        bool
	handlerEnded bool // the handler has returned
	dropped      bool // the handler has panicked
	resume       func(http.ResponseWriter, *http.Request)
	drop         func()
}

// SuspendStream is for package park. See muxed.Suspender.
func (w *responseWriter) SuspendStream(taker muxed.Waker) (muxed.Suspended, error) {
	st := w.st
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w.taken:
		return nil, http.ErrHijacked
	case w.over || w.status != 0 || !st.gotEnd:
		return nil, http.ErrNotSupported
	}
	w.taken = true
	st.wait, st.taker = wait{waits: true}, taker
	c.suspended++
	st.stopTimers()
	return st, nil
}

// Resume is for package park. See muxed.Suspended.
func (st *stream) Resume(serve func(http.ResponseWriter, *http.Request), drop func()) {
	c := st.c
	c.mu.Lock()
	if st.dropped {
		c.mu.Unlock()
		drop()
		return
	}
	defer c.mu.Unlock()
	st.resume, st.drop = serve, drop
	st.resumeIfDue()
}

// resumeIfDue begins to call the function of Resume, when the handler has returned. That does not
// wait for other handlers: such functions are fewer than streams may be open. The caller holds c.mu.
func (st *stream) resumeIfDue() {
	c := st.c
	if st.resume == nil || !st.handlerEnded {
		return
	}
	st.serve, st.taker, st.wait = st.resume, nil, wait{}
	st.w.taken = false
	if d := c.server.Server.WriteTimeout; d > 0 && st.err == nil {
		st.writeTimer = time.AfterFunc(d, st.writeTimedOut)
	}
	c.suspended--
	c.running++
	go st.run()
}

// dropWait ends the wait of a stream whose handler has panicked. It is called without c.mu.
func (st *stream) dropWait() {
	c := st.c
	c.mu.Lock()
	st.dropped = true
	drop := st.drop
	st.resume, st.drop = nil, nil
	c.mu.Unlock()
	if drop != nil {
		drop()
	}
}

// over reports whether nothing of an ended connection is left. The caller holds c.mu.
func (c *conn) over() bool { return c.finished && c.running == 0 && c.suspended == 0 }
