package http2

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

var (
	errStreamEnded  = fmt.Errorf("http2: the stream has ended: %w", os.ErrClosed)
	errWriteTimeout = fmt.Errorf("http2: the stream was reset: %w", os.ErrDeadlineExceeded)
)

// failed handles an error of a frame. It resets the stream if the error belongs to one, or returns the connection's error.
// The caller holds c.mu.
func (c *conn) failed(err error) error {
	var se http2.StreamError
	switch {
	case errors.As(err, &se):
		return c.resetStream(se.StreamID, se.Code)
	case errors.Is(err, http2.ErrFrameTooLarge):
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	case !errors.As(err, new(http2.ConnectionError)):
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return err
}

// resetStream answers a frame that is an error of its stream. The caller holds c.mu.
func (c *conn) resetStream(id uint32, code http2.ErrCode) error {
	if id%2 == 0 || c.opening <= awaitSettings {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st := c.stream(id); st != nil {
		st.reset(code, nil)
		return nil
	}
	if id > c.last && c.ending == endGoingAway {
		return nil
	}
	c.last = max(c.last, id)
	c.buffer().b = wire.AppendReset(c.buffer().b, id, code)
	c.remember(id)
	return nil
}

// remember records a stream that this side has reset. The caller holds c.mu.
func (c *conn) remember(id uint32) {
	c.reset[c.resets%uint8(len(c.reset))] = id
	c.resets++
}

// wasReset reports whether this side has reset the stream lately. The caller holds c.mu.
func (c *conn) wasReset(id uint32) bool { return slices.Contains(c.reset[:], id) }

// handleReset handles a RST_STREAM frame. The caller holds c.mu.
func (c *conn) handleReset(f *http2.RSTStreamFrame) error {
	if c.unopened(f.StreamID) {
		return c.server.count("reset_idle_stream", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	if st := c.stream(f.StreamID); st != nil {
		st.close(http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode})
	}
	return nil
}

// reset ends the stream with a RST_STREAM frame. The handler's reads and writes fail with cause, or
// if that is nil with the code. The caller holds c.mu.
func (st *stream) reset(code http2.ErrCode, cause error) {
	if st.err != nil {
		return
	}
	c := st.c
	c.buffer().b = wire.AppendReset(c.buffer().b, st.id, code)
	c.remember(st.id)
	if cause == nil {
		cause = http2.StreamError{StreamID: st.id, Code: code}
	}
	st.close(cause)
}

// receivedEnd records that the client has sent everything, and ends the stream if this side has too. The caller holds c.mu.
func (st *stream) receivedEnd() {
	if st.gotEnd || st.err != nil {
		panic("http2: the end of a stream was received twice")
	}
	st.gotEnd = true
	st.endIfDone()
}

// queuedEnd records that everything was sent or queued. endIfDone must follow. The caller holds c.mu.
func (st *stream) queuedEnd() {
	if st.sentEnd || st.err != nil {
		panic("http2: the end of a stream was queued twice")
	}
	st.sentEnd = true
}

// endIfDone ends the stream if both sides have sent everything. The caller holds c.mu.
func (st *stream) endIfDone() {
	if st.gotEnd && st.sentEnd {
		st.close(errStreamEnded)
	}
}

// close ends the stream. The caller holds c.mu.
func (st *stream) close(err error) {
	if st.err != nil {
		return
	}
	c := st.c
	st.err = err
	if i, ok := c.search(st.id); ok {
		c.streams = slices.Delete(c.streams, i, i+1)
	}
	st.stopTimers()
	if err != errStreamEnded {
		st.dropBody()
		st.dropInput()
	}
	if st.exchange != &handled {
		st.cancel()
	}
	st.wake()
	if st.holder != heldByHandler {
		c.unline(st)
	}
	c.idleSince = momentOf(time.Now())
	if len(c.streams) == 0 {
		c.changed(http.StateIdle)
		if c.partSince != 0 {
			c.interrupt() // the part may have been there for too long
		}
		if c.server.noKeepAlive.Load() && c.ending < endGoingAway {
			c.queueGoAway(http2.ErrCodeNo)
		}
	}
	c.settle()
}

// failure returns the error of a write to a stream that has ended, at least for the handler.
func (st *stream) failure() error {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if st.err == nil {
		return errStreamEnded
	}
	return st.err
}
