package http2

import (
	"io"
	"net/http"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
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
	if st.expects && !b.closed {
		st.expects = false
		if st.err == nil { // not by send, which may wait: the handler may send the final status from another goroutine
			c.queueHeader(st.id, &wire.Header{Status: http.StatusContinue}, false)
			c.flush()
		}
	}
	for len(p) > 0 && st.body.size == 0 && !st.gotEnd && st.bodyErr == nil && st.err == nil && !b.closed {
		st.cond.Wait()
	}
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	n := st.body.take(p)
	if n > 0 {
		st.consumed(int32(n))
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
	b.st.wake()
	c.startWriting()
	return nil
}
