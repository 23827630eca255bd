package http2

import (
	"errors"
	"io"
	"net"
	"net/http"
	"slices"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/muxed"
)

// A stream that was taken over needs no goroutine: another package writes its response, without
// waiting, and the stream calls its taker when it may write on. When the handler has returned, the
// stream keeps nothing that only handlers need.

// handled is the exchange of all streams that were taken over and whose handlers have returned. It
// is never changed. A Read of such a request's body, which a handler may have left to another
// goroutine, fails.
var handled = exchange{bodyErr: http.ErrBodyReadAfterClose, bodyClosed: true}

// TakeStream is for package park. See muxed.Writer.
func (w *responseWriter) TakeStream(taker muxed.Waker) (muxed.Stream, error) {
	st := w.st
	c := st.c
	c.mu.Lock()
	gotEnd := st.gotEnd
	c.mu.Unlock()
	if !gotEnd || w.over || w.taken || w.st.r.Method == http.MethodHead ||
		w.status != 0 && !bodyAllowed(w.status) {
		return nil, http.ErrNotSupported
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.declared >= 0 || len(w.trailers) > 0 {
		return nil, http.ErrNotSupported
	}
	w.flush(false) // Err returns its error
	w.taken, w.over = true, true
	c.mu.Lock()
	defer c.mu.Unlock()
	st.taker = taker
	st.stopTimers()
	return st, nil
}

// Write is for the taker. See muxed.Stream.
func (st *stream) Write(p []byte) (n int) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) && st.err == nil && !st.sentEnd {
		m := st.allowance(len(p) - n)
		if c.queued() >= maxOut {
			c.enline(&c.roomless, st)
			break
		} else if m == 0 {
			if st.outflow > 0 {
				c.enline(&c.shut, st)
			}
			break
		}
		st.appendData(p[n:n+m], false)
		n += m
	}
	c.wakeSender()
	c.startWriting()
	return n
}

// enline adds a stream that was taken over to a line, unless it is there. The caller holds c.mu.
func (c *conn) enline(line *[]*stream, st *stream) {
	if !slices.Contains(*line, st) {
		*line = append(*line, st)
	}
}

// unline removes a stream that was taken over, and has ended, from the lines. It may have been woken
// to send. The caller holds c.mu.
func (c *conn) unline(st *stream) {
	for _, line := range []*[]*stream{&c.roomless, &c.shut} {
		if i := slices.Index(*line, st); i >= 0 {
			*line = slices.Delete(*line, i, i+1)
		}
	}
	c.wakeSender()
}

// Err is for the taker. See muxed.Stream.
func (st *stream) Err() error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	var reset http2.StreamError
	switch {
	case errors.As(st.err, &reset) &&
		(reset.Code == http2.ErrCodeCancel || reset.Code == http2.ErrCodeNo):
		return io.EOF
	case st.err == io.EOF, errors.Is(st.err, net.ErrClosed):
		return io.EOF
	}
	return st.err
}

// Close is for the taker. See muxed.Stream.
func (st *stream) Close() {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err == nil && !st.sentEnd {
		st.appendData(nil, true)
		st.endIfDone()
		c.startWriting()
	}
}

// Reset is for the taker. See muxed.Stream.
func (st *stream) Reset() {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	st.reset(http2.ErrCodeCancel, nil)
	c.startWriting()
}

// NetConn is for the taker. See muxed.Stream.
func (st *stream) NetConn() net.Conn { return st.c.conn }
