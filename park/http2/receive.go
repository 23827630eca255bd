package http2

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// consume handles the frames that were received whole. An error ends the connection.
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
		c.mu.Lock()
		c.changed(http.StateActive) // as net/http does: it is not new any more, and idle
		c.changed(http.StateIdle)
		c.mu.Unlock()
	}
	p := parsers.Get().(*parser)
	defer p.release()
	frameSize := c.server.readFrameSize()
	p.framer.SetMaxReadFrameSize(uint32(frameSize))
	whole := false
	for at < b.end {
		n, err := measure(b.buf[at:b.end], frameSize)
		if err == nil && b.end-at >= frameHeader && !c.inOrder(b.buf[at:]) {
			err = http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if err != nil {
			return c.server.count("frame_size_or_order", err)
		}
		if n == 0 {
			break
		}
		if err := c.handle(p, b.buf[at:at+n]); err != nil {
			return err
		}
		whole = whole || c.block == nil
		b.bulk = b.bulk || n >= bulkFrame && http2.FrameType(b.buf[at+3]) == http2.FrameData
		at += n
	}
	b.consumed(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headPart = c.block != nil ||
		b.end >= frameHeader && http2.FrameType(b.buf[3]) == http2.FrameHeaders
	if c.lastCall && c.last > 0 && !c.goingAway && !c.ended {
		c.queueGoAway(http2.ErrCodeNo) // after all requests that have arrived with the first one
	}
	c.startWriting() // once for all that was received, so that many small frames do not cause a system call each
	if b.end == 0 && c.block == nil {
		c.partSince = 0
	} else if whole || c.partSince == 0 {
		if c.partSince = momentOf(time.Now()); len(c.streams) == 0 && !c.goingAway && !c.ended {
			c.linger(c.idleSince.time()) // the part may end it earlier; otherwise close does that
		}
	}
	return nil
}

// maxPart is the longest part of a frame that a parked connection keeps, unless it is of a header
// block.
const maxPart = 16 << 10

// shorten makes what is left of a frame shorter that has come in part, before the connection is
// parked. What has come of a DATA frame becomes a frame of its own, and what has come of a frame
// without a meaning is discarded. An error ends the connection.
func (c *conn) shorten(b *input) error {
	if b.end <= maxPart {
		return nil
	}
	size := int(b.buf[0])<<16 | int(b.buf[1])<<8 | int(b.buf[2])
	kept, padding := frameHeader, 0 // what stays before the rest, and what is after the data
	switch kind := http2.FrameType(b.buf[3]); {
	case kind == http2.FrameHeaders, kind == http2.FrameContinuation:
		return nil // ReadHeaderTimeout bounds the time
	case kind == http2.FrameData && http2.Flags(b.buf[4]).Has(http2.FlagDataPadded):
		kept, padding = kept+1, int(b.buf[frameHeader])
	case kind == http2.FrameData:
	case kind == http2.FrameGoAway, kind > http2.FrameContinuation:
		kept += 8 // GOAWAY has as many bytes at least
	default: // others are never as long
		return c.server.count("frame_size_or_order", http2.ConnectionError(http2.ErrCodeFrameSize))
	}
	n := min(b.end, frameHeader+size-padding) - kept
	if n <= 0 {
		return nil // the padding is too long, which is found when the frame is whole
	}
	var head [frameHeader + 8]byte
	copy(head[:], b.buf[:kept])
	if http2.FrameType(head[3]) == http2.FrameData {
		p := parsers.Get().(*parser)
		defer p.release()
		frame := b.buf[kept-frameHeader : kept+n]
		appendFrame(frame[:0], http2.FrameData, 0, streamOf(head[:]), n)
		if err := c.handle(p, frame); err != nil {
			return err
		}
		c.mu.Lock()
		c.startWriting()
		c.mu.Unlock()
	}
	size -= n
	head[0], head[1], head[2] = byte(size>>16), byte(size>>8), byte(size)
	copy(b.buf[n:], head[:kept])
	b.consumed(n)
	return nil
}

// handle handles a frame. An error ends the connection.
func (c *conn) handle(p *parser, b []byte) error {
	f, err := p.parse(b)
	kind := http2.FrameType(b[3])
	switch {
	case err == nil:
		f, err = c.decode(f)
	case kind == http2.FrameHeaders:
		// The block was not decoded, so the table is not the client's any more.
		err = http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.unlock()
	if c.ended { // by a goroutine that writes; streams that begin now would never end
		return errClosed
	}
	queued := c.queued()
	if err == nil {
		if c.server.config().SendPingTimeout > 0 {
			c.received, c.pinged = momentOf(time.Now()), 0
		}
		if f != nil {
			err = c.handleFrame(f)
		}
	} else {
		c.server.count("frame_"+strings.ToLower(kind.String()), err)
	}
	if err != nil {
		err = c.failed(err)
	}
	c.answers += c.queued() - queued
	if err == nil && (c.answers > maxAnswers || c.queued() > maxQueue) && !c.waitForWriter() {
		err = c.server.count("control_queue", http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
	}
	return err
}

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
	if id%2 == 0 || !c.configed {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if st := c.stream(id); st != nil {
		st.reset(code, nil)
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
func (c *conn) wasReset(id uint32) bool { return slices.Contains(c.reset[:], id) }

// unopened reports whether no stream id was opened yet. The caller holds c.mu.
func (c *conn) unopened(id uint32) bool { return id%2 == 0 || id > c.last }

// handleFrame handles a frame. The error is that of the connection or of a stream. The caller holds c.mu.
func (c *conn) handleFrame(f frame) error {
	if !c.configed {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return c.server.count("first_settings", http2.ConnectionError(http2.ErrCodeProtocol))
		}
		c.configed = true
	}
	if id := f.Header().StreamID; c.goingAway && id%2 == 1 && id > c.last {
		if d, ok := f.(*dataFrame); ok {
			return c.discard(d)
		}
		return nil // the client opens such streams again elsewhere
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.handleSettings(f)
	case *http2.MetaHeadersFrame:
		return c.handleHeaders(f)
	case *dataFrame:
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
			return c.server.count("reset_idle_stream", http2.ConnectionError(http2.ErrCodeProtocol))
		}
		if st := c.stream(f.StreamID); st != nil {
			st.close(http2.StreamError{StreamID: f.StreamID, Code: f.ErrCode})
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return c.server.count("priority", http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol})
		}
	case *http2.PushPromiseFrame:
		return c.server.count("push_promise", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	return nil
}

func (c *conn) handleSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		if c.acked {
			return c.server.count("ack_mystery", http2.ConnectionError(http2.ErrCodeProtocol))
		}
		before := c.streamWindow()
		c.acked = true
		for _, st := range c.streams {
			st.inflow += c.streamWindow() - before
		}
		return nil
	}
	if f.NumSettings() > maxSettings {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	// The streams are changed once, by the last value.
	window := c.window
	err := f.ForeachSetting(func(s http2.Setting) error {
		if s.ID == http2.SettingInitialWindowSize {
			window = int64(s.Val)
		}
		if s.ID == http2.SettingHeaderTableSize && c.encoder != nil {
			c.encoder.hpack.SetMaxDynamicTableSize(s.Val) // the encoder's limit holds
		}
		return s.Valid() // frames are never larger than every client allows
	})
	if err != nil {
		return err
	}
	if change := window - c.window; change != 0 {
		c.window = window
		for _, st := range c.streams {
			if err := st.grow(change); err != nil {
				return c.server.count("setting_win_size", http2.ConnectionError(http2.ErrCodeFlowControl))
			}
		}
	}
	c.buffer().b = appendFrame(c.buffer().b, http2.FrameSettings, http2.FlagSettingsAck, 0, 0)
	return nil
}

// grow adds n to the client's window of the stream. It wakes the handler only if the window was closed and is open now:
// windows can change far more often than handlers can use them. The caller holds c.mu.
func (st *stream) grow(n int64) error {
	closed := st.outflow <= 0
	if st.outflow += n; st.outflow > maxWindow {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	if closed && st.outflow > 0 {
		st.wake()
	}
	return nil
}

// maxWindow is RFC 9113's bound of a window.
const maxWindow = 1<<31 - 1

func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	n := int64(f.Increment)
	if f.StreamID == 0 {
		if c.outflow += n; c.outflow > maxWindow {
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

func (c *conn) handleData(f *dataFrame) error {
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
	if size > c.inflow {
		return c.server.count("data_flow", http2.ConnectionError(http2.ErrCodeFlowControl))
	}
	if size > st.inflow {
		c.discard(f)
		return c.server.count("data_flow", http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl})
	}
	c.inflow -= size
	st.inflow -= size
	data, ended := f.data, f.Flags.Has(http2.FlagDataEndStream)
	if !st.duplex {
		st.received += int64(len(data))
		if st.declared >= 0 && (st.received > st.declared || ended && st.received != st.declared) {
			c.giveBack(size)
			malformed := http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
			return c.server.count("send_too_much", malformed)
		}
	}
	read := size - int32(len(data)) // padding
	switch {
	case st.duplex:
		st.queueInput(data)
	case st.bodyClosed:
		read = size
	default:
		st.body.write(data)
	}
	c.giveBack(read)
	if ended {
		st.gotEnd = true
		st.endIfDone()
	} else {
		st.giveBack(read)
	}
	if len(data) > 0 || st.gotEnd {
		st.wake()
	}
	return nil
}

// discard accounts for a DATA frame that is not used. The caller holds c.mu.
func (c *conn) discard(f *dataFrame) error {
	size := int32(f.Length)
	if size > c.inflow {
		return c.server.count("data_flow", http2.ConnectionError(http2.ErrCodeFlowControl))
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
