package http2

import (
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// handleWindowUpdate handles a WINDOW_UPDATE frame. The caller holds c.mu.
func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	n := int32(f.Increment)
	if f.StreamID == 0 {
		if _, err := c.outflow.Grow(n); err != nil {
			return c.server.count("bad_flow", http2.ConnectionError(http2.ErrCodeFlowControl))
		}
		c.wakeSender()
		return nil
	}
	if c.unopened(f.StreamID) {
		return c.server.count("stream_idle", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	st := c.stream(f.StreamID)
	if st == nil {
		return nil
	}
	if err := st.grow(n); err != nil {
		return c.server.count("bad_flow", err)
	}
	return nil
}

// grow adds n to the client's window of the stream. It wakes the handler only if the window was closed and is open now:
// windows can change far more often than handlers can use them. The caller holds c.mu.
func (st *stream) grow(n int32) error {
	opened, err := st.outflow.Grow(n)
	if err != nil {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	if opened {
		st.wake()
	}
	return nil
}

// giveBack returns n bytes to the client's window of the connection. The caller holds c.mu.
func (c *conn) giveBack(n int32) {
	if n = c.inflow.Return(n, c.server.connWindow()); n > 0 {
		c.buffer().b = wire.AppendWindowUpdate(c.buffer().b, 0, n)
	}
}

// giveBack returns n bytes to the client's window of the stream, unless that has ended. The caller holds c.mu.
func (st *stream) giveBack(n int32) {
	if st.err != nil || st.gotEnd {
		return
	}
	c := st.c
	if n = st.inflow.Return(n, c.server.streamWindow()); n > 0 {
		c.buffer().b = wire.AppendWindowUpdate(c.buffer().b, st.id, n)
	}
}

// consumed returns n bytes to both windows. The caller holds c.mu.
func (st *stream) consumed(n int32) {
	st.c.giveBack(n)
	st.giveBack(n)
}

// dropBody discards what has arrived of the body, and what will arrive. The caller holds c.mu.
func (st *stream) dropBody() {
	if st.exchange == &handled {
		return
	}
	st.bodyClosed = true
	n := int32(st.body.size)
	st.body.drop()
	if n > 0 {
		st.c.giveBack(n)
	}
}

// dropInput discards what the taker has not read. The caller holds c.mu.
func (st *stream) dropInput() {
	if q := st.input; q != nil {
		st.input = nil
		st.c.giveBack(int32(q.size))
		q.drop()
	}
}
