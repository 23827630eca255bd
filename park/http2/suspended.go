package http2

import (
	"net/http"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A wait is what a stream has whose request waits without a handler. When the handler has returned,
// the stream has no exchange of its own until the wait ends. The fields are protected by conn.mu.
type wait struct {
	handlerEnded bool // the handler has returned
	dropped      bool // the handler has panicked
	resume       func(http.ResponseWriter, *http.Request)
	drop         func()
	method       string
	header       http.Header // of the response, or nil
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
	st.wait, st.taker = new(wait), taker
	c.suspended++
	st.stopTimers()
	return st, nil
}

// Resume is for package park. See muxed.Suspended.
func (st *stream) Resume(serve func(http.ResponseWriter, *http.Request), drop func()) {
	c := st.c
	c.mu.Lock()
	if st.wait.dropped {
		c.mu.Unlock()
		drop()
		return
	}
	defer c.mu.Unlock()
	st.wait.resume, st.wait.drop = serve, drop
	st.resumeIfDue()
}

// handlerEnded is called when the handler of a request that waits has returned. The caller holds
// c.mu.
func (st *stream) handlerEnded() {
	q := st.wait
	q.handlerEnded, q.method = true, st.r.Method
	if len(st.w.header) > 0 {
		q.header = st.w.header
	}
	st.cancel()
	st.exchange = &handled
	st.resumeIfDue()
}

// resumeIfDue begins to call the function of Resume, when the handler has returned. That does not
// wait for other handlers: such functions are fewer than streams may be open. The caller holds c.mu.
func (st *stream) resumeIfDue() {
	c, q := st.c, st.wait
	if q.resume == nil || !q.handlerEnded {
		return
	}
	st.taker, st.wait = nil, nil
	ctx := st.begin()
	st.serve = q.resume
	st.r = (&http.Request{Method: q.method, Proto: "HTTP/2.0", ProtoMajor: 2,
		RemoteAddr: c.conn.RemoteAddr().String(), TLS: c.connectionState(),
		Body: http.NoBody}).WithContext(ctx)
	if q.header != nil {
		st.w.header = q.header
	}
	if st.err != nil {
		st.cancel()
	} else if d := c.server.Server.WriteTimeout; d > 0 {
		st.startTimer(writes, d)
	}
	c.suspended--
	c.running++
	go st.run()
}

// dropWait ends the wait of a stream whose handler has panicked. It is called without c.mu.
func (st *stream) dropWait() {
	c := st.c
	c.mu.Lock()
	drop := st.wait.drop
	*st.wait = wait{dropped: true}
	c.mu.Unlock()
	if drop != nil {
		drop()
	}
}

// over reports whether nothing of an ended connection is left. The caller holds c.mu.
func (c *conn) over() bool { return c.finished && c.running == 0 && c.suspended == 0 }
