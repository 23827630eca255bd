package http2

import (
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/net/http2"
)

// A requestBody is the body of a request. The bytes that have arrived are in stream.body, whose size the windows bound.
type requestBody struct {
	st     *stream
	closed bool
	eof    bool
}

// Read waits until a part of the body has arrived.
func (b *requestBody) Read(p []byte) (int, error) {
	st := b.st
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if st.expects && len(st.body) == 0 && !st.gotEnd {
		st.expects = false
		c.mu.Unlock()
		st.send(encodeHeader(http.StatusContinue, nil), nil, false)
		c.mu.Lock()
	}
	for len(p) > 0 && len(st.body) == 0 && !st.gotEnd && st.bodyErr == nil && st.err == nil {
		st.cond.Wait()
	}
	n := copy(p, st.body)
	if st.body = st.body[n:]; len(st.body) == 0 {
		st.body = nil
	}
	if n > 0 {
		c.giveBack(int32(n))
		if !st.gotEnd {
			st.giveBack(int32(n))
		}
		c.flush()
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case st.bodyErr != nil:
		return 0, st.bodyErr
	case st.err != nil && st.err != errStreamEnded:
		return 0, st.err
	}
	if !b.eof {
		b.eof = true
		for name := range st.r.Trailer {
			if values, ok := st.trailer[name]; ok {
				st.r.Trailer[name] = values
			}
		}
	}
	return 0, io.EOF
}

// Close makes what is left of the body be discarded.
func (b *requestBody) Close() error {
	c := b.st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	b.st.dropBody()
	c.startWriting()
	return nil
}

// dropBody discards what has arrived of the body, and what will arrive. The caller holds c.mu.
func (st *stream) dropBody() {
	st.bodyClosed = true
	n := int32(len(st.body))
	if st.body = nil; n > 0 {
		st.c.giveBack(n)
	}
}

// giveBack returns n bytes to the client's window of the stream, as conn.giveBack does. The caller holds c.mu.
func (st *stream) giveBack(n int32) {
	c := st.c
	if st.unacked += n; st.err == nil && st.unacked > 0 && st.unacked >= c.server.streamWindow()/2 {
		c.buffer().b = appendWindowUpdate(c.buffer().b, st.id, st.unacked)
		st.inflow += st.unacked
		st.unacked = 0
	}
}

// streamWindow returns what the client may send on a new stream. The caller holds c.mu.
func (c *conn) streamWindow() int32 {
	if c.acked {
		return c.server.streamWindow()
	}
	return initialWindow // the client does not know the server's settings yet
}

// setReadDeadline sets the time after which Read fails, for http.ResponseController.
func (st *stream) setReadDeadline(at time.Time) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.readTimer != nil {
		st.readTimer.Stop()
		st.readTimer = nil
	}
	if at.IsZero() || st.err != nil {
		return
	}
	if d := time.Until(at); d > 0 {
		st.readTimer = time.AfterFunc(d, st.readTimedOut)
	} else if st.bodyErr == nil {
		st.bodyErr = os.ErrDeadlineExceeded
		st.cond.Broadcast()
	}
}

// setWriteDeadline sets the time after which the stream is reset, for http.ResponseController.
func (st *stream) setWriteDeadline(at time.Time) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.writeTimer != nil {
		st.writeTimer.Stop()
		st.writeTimer = nil
	}
	if at.IsZero() || st.err != nil {
		return
	}
	if d := time.Until(at); d > 0 {
		st.writeTimer = time.AfterFunc(d, st.writeTimedOut)
	} else {
		st.reset(http2.ErrCodeInternal)
		c.startWriting()
	}
}
