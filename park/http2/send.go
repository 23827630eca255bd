package http2

import (
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// send queues a header block, if it is not nil, and a part of the body, and writes them. It waits for the client's windows,
// and while much is queued. It fails if the stream has ended before everything was queued.
func (st *stream) send(block *wire.Header, p []byte, end bool) error {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if st.err == nil && st.sentEnd {
		return errStreamEnded
	}
	for st.err == nil && (block != nil || len(p) > 0 || end && !st.sentEnd) {
		if st.sentEnd { // another goroutine of the handler has ended the response, while this one waited
			c.wakeSender()
			return errStreamEnded
		}
		if n := st.allowance(len(p)); c.queued() >= maxOut || block == nil && n == 0 && len(p) > 0 {
			switch {
			case !c.writing && c.out != nil:
				c.flush()
			case c.queued() >= maxOut:
				st.waitIn(&c.roomless)
			case st.outflow.Available() > 0:
				st.waitIn(&c.shut)
			default: // the client opens the stream's window, or the stream ends
				c.wakeSender()
				st.cond.Wait()
			}
			continue
		} else if block != nil {
			last := end && len(p) == 0
			c.queueHeader(st.id, block, last)
			if block = nil; last {
				st.queuedEnd()
			}
		} else {
			st.queueData(p[:n], end && n == len(p))
			p = p[n:]
		}
	}
	err := st.err
	if err == nil {
		st.endIfDone()
	}
	c.wakeSender()
	c.flush()
	return err
}

// allowance returns how many of n bytes may be sent now in a frame. The caller holds c.mu.
func (st *stream) allowance(n int) int {
	return min(n, wire.MaxSize, st.outflow.Available(), st.c.outflow.Available())
}

// queueHeader queues a header block. The caller holds c.mu.
func (c *conn) queueHeader(stream uint32, h *wire.Header, end bool) {
	c.asks.earn()
	o := c.buffer()
	o.b = c.encoder.Append(o.b, stream, h, end)
}

// queueData queues a DATA frame, for which the windows must be open. The caller holds c.mu.
func (st *stream) queueData(p []byte, end bool) {
	c, flags := st.c, http2.Flags(0)
	c.asks.earn()
	if end {
		flags = http2.FlagDataEndStream
		st.queuedEnd()
	}
	o := c.buffer()
	o.b = append(wire.AppendFrame(o.b, http2.FrameData, flags, st.id, len(p)), p...)
	st.outflow.Take(len(p))
	c.outflow.Take(len(p))
}
