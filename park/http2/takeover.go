package http2

import (
	"errors"
	"io"
	"net"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A stream that was taken over needs no goroutine: another package writes its response, without
// waiting, and the stream calls its taker when it may write on. The stream of a CONNECT request is
// duplex: the taker also reads what the client sends, and is called when something has arrived.
// When the handler has returned, the stream keeps nothing that only handlers need.

// TakeStream is for package park. See muxed.Writer.
func (w *responseWriter) TakeStream(taker muxed.Waker, tunnel bool) (muxed.Stream, error) {
	st := w.st
	c := st.c
	c.mu.Lock()
	gotEnd := st.gotEnd
	c.mu.Unlock()
	duplex := st.r.Method == http.MethodConnect
	switch {
	case w.over || w.taken || st.r.Method == http.MethodHead,
		w.status != 0 && !bodyAllowed(w.status),
		duplex && (w.status >= 300 || st.declared >= 0),
		!duplex && (!gotEnd || tunnel):
		return nil, http.ErrNotSupported
	}
	w.WriteHeader(http.StatusOK)
	if w.declared >= 0 || len(w.trailers) > 0 {
		return nil, http.ErrNotSupported
	}
	w.flush(false) // Err returns its error
	w.taken, w.over = true, true
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case tunnel && st.r.Header[":protocol"] == nil:
		st.setHolder(heldByPlainTunnel, taker)
	case tunnel:
		st.setHolder(heldByTunnel, taker)
	case duplex:
		st.setHolder(heldByDuplex, taker)
	default:
		st.setHolder(heldByWriter, taker)
	}
	if st.stopTimers(); duplex && st.body.size > 0 {
		received := st.body
		st.input, st.body = &received, queue{}
	}
	return st, nil
}

// Read is for the taker. See muxed.Stream.
func (st *stream) Read(p []byte) (n int, err error) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.input != nil {
		if n = st.input.take(p); st.input.size == 0 {
			st.input = nil
		}
		st.consumed(int32(n))
		c.startWriting()
	}
	switch {
	case st.input != nil:
	case st.duplex() && st.gotEnd && (st.err == nil || st.err == errStreamEnded):
		err = io.EOF
	default:
		err = st.cause()
	}
	return n, err
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
			if st.outflow.Available() > 0 {
				c.enline(&c.shut, st)
			}
			break
		}
		st.queueData(p[n:n+m], false)
		n += m
	}
	c.wakeSender()
	c.startWriting()
	return n
}

// Err is for the taker. See muxed.Stream.
func (st *stream) Err() error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	return st.cause()
}

// cause is Err for a caller that holds c.mu.
func (st *stream) cause() error {
	var reset http2.StreamError
	switch {
	case st.tunnel() && st.err == errStreamEnded:
		return nil
	case st.tunnel():
	case errors.As(st.err, &reset) &&
		(reset.Code == http2.ErrCodeCancel || reset.Code == http2.ErrCodeNo):
		return io.EOF
	case st.err == io.EOF, errors.Is(st.err, net.ErrClosed):
		return io.EOF
	}
	return st.err
}

// CloseWrite is for the taker. See muxed.Stream.
func (st *stream) CloseWrite() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.endWriting()
	st.c.startWriting()
}

// endWriting ends the response. The caller holds c.mu.
func (st *stream) endWriting() {
	if st.err == nil && !st.sentEnd {
		st.queueData(nil, true)
		st.endIfDone()
	}
}

// Close is for the taker. See muxed.Stream.
func (st *stream) Close() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	st.endWriting()
	st.abandon(http2.ErrCodeNo) // if the client may send more, it need not
}

// Reset is for the taker. See muxed.Stream.
func (st *stream) Reset() {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	code := http2.ErrCodeCancel // RFC 8441 (5) has it also for a tunnel
	if st.holder == heldByPlainTunnel {
		code = http2.ErrCodeConnect
	}
	st.abandon(code)
}

// abandon resets the stream, unless it has ended, and discards what was not read. The caller holds
// c.mu.
func (st *stream) abandon(code http2.ErrCode) {
	st.reset(code, nil)
	st.dropInput()
	st.c.startWriting()
}

// NetConn is for the taker. See muxed.Stream.
func (st *stream) NetConn() net.Conn { return st.c.conn }
