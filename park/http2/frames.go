package http2

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// consume handles the frames that were received whole. An error ends the connection.
func (c *conn) consume(b *input) error {
	at := 0
	if c.opening == awaitPreface {
		n := min(b.end, len(http2.ClientPreface))
		switch {
		case !bytes.Equal(b.buf[:n], []byte(http2.ClientPreface[:n])):
			return http2.ConnectionError(http2.ErrCodeProtocol)
		case n < len(http2.ClientPreface):
			return nil
		}
		at = n
		c.mu.Lock()
		c.setOpening(awaitSettings)
		c.changed(http.StateActive) // as net/http does: it is not new any more, and idle
		c.changed(http.StateIdle)
		c.mu.Unlock()
	}
	frameSize := c.server.readFrameSize()
	p := wire.GetParser(frameSize)
	defer p.Release()
	whole := false
	for at < b.end {
		n, err := wire.Measure(b.buf[at:b.end], frameSize)
		if err == nil && b.end-at >= wire.HeaderSize && !c.decoder.InOrder(b.buf[at:]) {
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
		whole = whole || !c.decoder.Begun()
		b.bulk = b.bulk || n >= bulkFrame && http2.FrameType(b.buf[at+3]) == http2.FrameData
		at += n
	}
	b.consumed(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headPart = c.decoder.Begun() ||
		b.end >= wire.HeaderSize && http2.FrameType(b.buf[3]) == http2.FrameHeaders
	if c.ending == endAfterFirst && c.last > 0 {
		c.queueGoAway(http2.ErrCodeNo) // after all requests that have arrived with the first one
	}
	c.startWriting() // once for all that was received, so that many small frames do not cause a system call each
	if b.end == 0 && !c.decoder.Begun() {
		c.partSince = 0
	} else if whole || c.partSince == 0 {
		if c.partSince = momentOf(time.Now()); len(c.streams) == 0 && c.ending < endGoingAway {
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
	kept, padding := wire.HeaderSize, 0 // what stays before the rest, and what is after the data
	switch kind := http2.FrameType(b.buf[3]); {
	case kind == http2.FrameHeaders, kind == http2.FrameContinuation:
		return nil // ReadHeaderTimeout bounds the time
	case kind == http2.FrameData && http2.Flags(b.buf[4]).Has(http2.FlagDataPadded):
		kept, padding = kept+1, int(b.buf[wire.HeaderSize])
	case kind == http2.FrameData:
	case kind == http2.FrameGoAway, kind > http2.FrameContinuation:
		kept += 8 // GOAWAY has as many bytes at least
	default: // others are never as long
		return c.server.count("frame_size_or_order", http2.ConnectionError(http2.ErrCodeFrameSize))
	}
	n := min(b.end, wire.HeaderSize+size-padding) - kept
	if n <= 0 {
		return nil // the padding is too long, which is found when the frame is whole
	}
	var head [wire.HeaderSize + 8]byte
	copy(head[:], b.buf[:kept])
	if http2.FrameType(head[3]) == http2.FrameData {
		p := wire.GetParser(c.server.readFrameSize())
		defer p.Release()
		frame := b.buf[kept-wire.HeaderSize : kept+n]
		wire.AppendFrame(frame[:0], http2.FrameData, 0, wire.StreamOf(head[:]), n)
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
func (c *conn) handle(p *wire.Parser, b []byte) error {
	f, err := p.Parse(b)
	kind := http2.FrameType(b[3])
	switch {
	case err == nil:
		f, err = c.decoder.Decode(f, c.server.maxHeaderList())
	case kind == http2.FrameHeaders:
		// The block was not decoded, so the table is not the client's any more.
		err = http2.ConnectionError(http2.ErrCodeProtocol)
	}
	c.mu.Lock()
	defer c.unlock()
	if c.ending == ended { // by a goroutine that writes; streams that begin now would never end
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

// ask is called for a frame that asks for an answer and moves nothing. The caller holds c.mu.
func (c *conn) ask() error {
	if c.asks.take(time.Now) {
		return nil
	}
	return c.server.count("control_flood", http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
}

// handleFrame handles a frame. The error is that of the connection or of a stream. The caller holds c.mu.
func (c *conn) handleFrame(f wire.Frame) error {
	if c.opening == awaitSettings {
		if s, ok := f.(*http2.SettingsFrame); !ok || s.IsAck() {
			return c.server.count("first_settings", http2.ConnectionError(http2.ErrCodeProtocol))
		}
		c.setOpening(awaitAck)
	}
	if id := f.Header().StreamID; c.ending == endGoingAway && id%2 == 1 && id > c.last {
		if d, ok := f.(*wire.DataFrame); ok {
			return c.discard(d)
		}
		return nil // the client opens such streams again elsewhere
	}
	switch f := f.(type) {
	case *http2.SettingsFrame:
		return c.handleSettings(f)
	case *http2.MetaHeadersFrame:
		return c.handleHeaders(f)
	case *wire.DataFrame:
		return c.handleData(f)
	case *http2.WindowUpdateFrame:
		return c.handleWindowUpdate(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			if err := c.ask(); err != nil {
				return err
			}
			o := c.buffer()
			o.b = append(wire.AppendFrame(o.b, http2.FramePing, http2.FlagPingAck, 0, len(f.Data)), f.Data[:]...)
		}
	case *http2.RSTStreamFrame:
		return c.handleReset(f)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return c.server.count("priority", http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol})
		}
	case *http2.PushPromiseFrame:
		return c.server.count("push_promise", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	return nil
}
