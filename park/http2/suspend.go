package http2

import (
	"net/http"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

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
	st.wait = new(wait)
	st.setHolder(heldByWait, taker)
	c.suspended++
	st.stopTimers()
	return st, nil
}

// Resume is for package park. See muxed.Suspended.
func (st *stream) Resume(serve func(http.ResponseWriter, *http.Request), drop func()) {
	c := st.c
	c.mu.Lock()
	if st.wait.handler == waitPanicked {
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
	q.handler, q.method = waitReturned, st.r.Method
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
	if q.resume == nil || q.handler != waitReturned {
		return
	}
	st.setHolder(heldByHandler, nil)
	st.wait = nil
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
	*st.wait = wait{handler: waitPanicked}
	c.mu.Unlock()
	if drop != nil {
		drop()
	}
}
