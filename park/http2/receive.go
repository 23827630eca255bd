package http2

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/net/http2"
)

// consume handles the units that were received whole. An error ends the connection.
func (c *conn) consume(b *input) error {
	at := 0
	if !c.greeted {
		n := min(b.end, len(http2.ClientPreface))
		switch {
		case !bytes.Equal(b.buf[:n], []byte(http2.ClientPreface[:n])):
			return http2.ConnectionError(http2.ErrCodeProtocol)
		case n < len(http2.ClientPreface):
			return nil
		}
		c.greeted, at = true, n
	}
	p := parsers.Get().(*parser)
	p.framer.ReadMetaHeaders = c.decoder
	p.framer.MaxHeaderListSize = c.server.maxHeaderList()
	whole := false
	for at < b.end {
		n, next, err := measure(b.buf[at:b.end], c.measured, c.server.maxBlock())
		c.measured = next
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := c.handle(p, b.buf[at:at+n]); err != nil {
			return err
		}
		whole = true
		at += n
	}
	p.release()
	b.consumed(at)
	if b.end == 0 {
		c.partSince = time.Time{}
	} else if whole || c.partSince.IsZero() {
		c.partSince = time.Now()
	}
	return nil
}

// handle handles a unit. An error ends the connection.
func (c *conn) handle(p *parser, unit []byte) error {
	f, err := p.parse(unit)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		err = c.handleFrame(f)
	}
	var se http2.StreamError
	switch {
	case errors.As(err, &se):
		err = c.resetStream(se.StreamID, se.Code)
	case errors.Is(err, http2.ErrFrameTooLarge):
		err = http2.ConnectionError(http2.ErrCodeFrameSize)
	case err != nil && !errors.As(err, new(http2.ConnectionError)):
		err = http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err == nil && c.queued() > maxControl {
		err = http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	if err == nil && c.out != nil {
		c.startWriting()
	}
	return err
}

// resetStream answers a frame that is an error of its stream. The caller holds c.mu.
func (c *conn) resetStream(id uint32, code http2.ErrCode) error {
	if id%2 == 0 || !c.configed {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st := c.streams[id]; st != nil {
		st.reset(code)
		return nil
	}
	if id > c.last && c.goingAway {
		return nil
	}
	c.last = max(c.last, id)
	c.buffer().b = appendReset(c.buffer().b, id, code)
	c.remember(id)
	return nil
}

// remember records a stream that this side has reset. The caller holds c.mu.
func (c *conn) remember(id uint32) {
	c.reset[c.resets%uint8(len(c.reset))] = id
	c.resets++
}

// wasReset reports whether this side has reset the stream lately. The caller holds c.mu.
func (c *conn) wasReset(id uint32) bool {
	for _, r := range c.reset {
		if r == id {
			return true
		}
	}
	return false
}

// unopened reports whether no stream id was opened yet. The caller holds c.mu.
func (c *conn) unopened(id uint32) bool { return id%2 == 0 || id > c.last }

// handleFrame handles a frame. The error is that of the connection or of a stream. The caller holds c.mu.
func (c *conn) handleFrame(f http2.Frame) error {
	if !c.configed {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.configed = true
	}
	if id := f.Header().StreamID; c.goingAway && id%2 == 1 && id > c.last {
		if d, ok := f.(*http2.DataFrame); ok {
			return c.discard(d)
		}
		return nil // the client opens such streams again elsewhere
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.handleSettings(f)
	case *http2.MetaHeadersFrame:
		return c.handleHeaders(f)
	case *http2.DataFrame:
		return c.handleData(f)
	case *http2.WindowUpdateFrame:
		return c.handleWindowUpdate(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			o := c.buffer()
			o.b = append(appendFrame(o.b, http2.FramePing, http2.FlagPingAck, 0, len(f.Data)), f.Data[:]...)
		}
	case *http2.RSTStreamFrame:
		if c.unopened(f.StreamID) {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if st := c.streams[f.StreamID]; st != nil {
			st.close(http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode})
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) handleSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.acked {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		c.acked = true
		for _, st := range c.streams {
			st.inflow += c.server.streamWindow() - initialWindow
		}
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		if s.ID != http2.SettingInitialWindowSize {
			return nil // the encoder has no table, and frames are never larger than every client allows
		}
		change := int64(s.Val) - c.window
		c.window = int64(s.Val)
		for _, st := range c.streams {
			if st.outflow += change; st.outflow > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			st.cond.Broadcast()
		}
		return nil
	})
	if err == nil {
		c.buffer().b = appendFrame(c.buffer().b, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	}
	return err
}

// maxWindow is RFC 9113's bound of a window.
const maxWindow = 1<<31 - 1

func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	n := int64(f.Increment)
	if f.StreamID == 0 {
		if c.outflow += n; c.outflow > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		for _, st := range c.streams {
			st.cond.Broadcast()
		}
		return nil
	}
	if c.unopened(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return nil
	}
	if st.outflow += n; st.outflow > maxWindow {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	st.cond.Broadcast()
	return nil
}

func (c *conn) handleData(f *http2.DataFrame) error {
	if c.unopened(f.StreamID) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	st := c.streams[f.StreamID]
	if st == nil || st.gotEnd {
		if err := c.discard(f); err != nil || st == nil && c.wasReset(f.StreamID) {
			return err
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	size := int32(f.Length)
	if size > c.inflow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if size > st.inflow {
		c.discard(f)
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	c.inflow -= size
	st.inflow -= size
	data := f.Data()
	st.received += int64(len(data))
	if st.declared >= 0 && (st.received > st.declared || f.StreamEnded() && st.received != st.declared) {
		c.giveBack(size)
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
	}
	read := size - int32(len(data)) // padding
	if st.bodyClosed {
		read = size
	} else {
		st.body = append(st.body, data...)
	}
	c.giveBack(read)
	if f.StreamEnded() {
		st.gotEnd = true
		st.endIfDone()
	} else {
		st.giveBack(read)
	}
	st.cond.Broadcast()
	return nil
}

// discard accounts for a DATA frame that is not used. The caller holds c.mu.
func (c *conn) discard(f *http2.DataFrame) error {
	size := int32(f.Length)
	if size > c.inflow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	c.inflow -= size
	c.giveBack(size)
	return nil
}

// giveBack returns n bytes to the client's window of the connection. The client learns it when they are half of the window,
// so that bytes that arrive one at a time do not cause a frame each. The caller holds c.mu.
func (c *conn) giveBack(n int32) {
	if c.unacked += n; c.unacked > 0 && c.unacked >= c.server.connWindow()/2 {
		c.buffer().b = appendWindowUpdate(c.buffer().b, 0, c.unacked)
		c.inflow += c.unacked
		c.unacked = 0
	}
}
