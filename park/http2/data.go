package http2

import (
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// handleData handles a DATA frame. The caller holds c.mu.
func (c *conn) handleData(f *wire.DataFrame) error {
	if c.unopened(f.StreamID) {
		return c.server.count("data_on_idle", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	st := c.stream(f.StreamID)
	if st == nil || st.gotEnd {
		if err := c.discard(f); err != nil || st == nil && c.wasReset(f.StreamID) {
			return err
		}
		return c.server.count("closed", http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed})
	}
	size := int32(f.Length)
	if !c.inflow.Take(size) {
		return c.server.count("data_flow", http2.ConnectionError(http2.ErrCodeFlowControl))
	}
	if !st.inflow.Take(size) {
		c.giveBack(size)
		return c.server.count("data_flow", http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl})
	}
	data, ended := f.Data, f.Flags.Has(http2.FlagDataEndStream)
	if !st.duplex() {
		st.received += int64(len(data))
		if st.declared >= 0 && (st.received > st.declared || ended && st.received != st.declared) {
			c.giveBack(size)
			malformed := http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
			return c.server.count("send_too_much", malformed)
		}
	}
	read := size - int32(len(data)) // padding
	switch {
	case st.duplex():
		st.queueInput(data)
	case st.bodyClosed:
		read = size
	default:
		st.body.write(data)
	}
	c.giveBack(read)
	if ended {
		st.receivedEnd()
	} else {
		st.giveBack(read)
	}
	if len(data) > 0 || st.gotEnd {
		c.asks.earn()
		st.wake()
	}
	return nil
}

// discard accounts for a DATA frame that is not used. The caller holds c.mu.
func (c *conn) discard(f *wire.DataFrame) error {
	size := int32(f.Length)
	if !c.inflow.Take(size) {
		return c.server.count("data_flow", http2.ConnectionError(http2.ErrCodeFlowControl))
	}
	c.giveBack(size)
	return nil
}

// queueInput keeps what was received of a duplex stream for its taker. The caller holds c.mu.
func (st *stream) queueInput(b []byte) {
	if len(b) == 0 {
		return
	}
	if st.input == nil {
		st.input = new(queue)
	}
	st.input.write(b)
}
