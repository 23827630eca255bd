package http2

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// frameHeader is the number of bytes before a frame's payload.
const frameHeader = 9

// measure returns the length of the frame at the beginning of b, or 0 if there is only a part of it.
func measure(b []byte, maxFrame int) (int, error) {
	if len(b) < frameHeader {
		return 0, nil
	}
	size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	switch {
	case size > maxFrame:
		return 0, http2.ConnectionError(http2.ErrCodeFrameSize)
	case len(b) < frameHeader+size:
		return 0, nil
	}
	return frameHeader + size, nil
}

func streamOf(header []byte) uint32 { return binary.BigEndian.Uint32(header[5:]) &^ (1 << 31) }

// A frame is an http2.Frame other than a DATA frame, or a *dataFrame.
type frame interface{ Header() http2.FrameHeader }

// A dataFrame is a DATA frame. A Framer would copy its payload.
type dataFrame struct {
	http2.FrameHeader
	data []byte // without padding
}

// A parser is a Framer for frames that are complete, so that it never waits. It has no state of a connection.
type parser struct {
	in     bytes.Reader
	framer *http2.Framer
	data   dataFrame
}

var parsers = sync.Pool{New: func() any {
	p := new(parser)
	p.framer = http2.NewFramer(io.Discard, &p.in)
	p.framer.SetReuseFrames()
	p.framer.AllowIllegalReads = true // conn.inOrder checks the order
	return p
}}

// parse parses a frame. The result is valid until the next call, and while b is not changed.
func (p *parser) parse(b []byte) (frame, error) {
	if http2.FrameType(b[3]) == http2.FrameData {
		return p.parseData(b)
	}
	p.in.Reset(b)
	return p.framer.ReadFrame()
}

// parseData parses a DATA frame (RFC 9113, 6.1).
func (p *parser) parseData(b []byte) (frame, error) {
	data := b[frameHeader:]
	h := http2.FrameHeader{Type: http2.FrameData, Flags: http2.Flags(b[4]), Length: uint32(len(data)), StreamID: streamOf(b)}
	padded := h.Flags.Has(http2.FlagDataPadded)
	if h.StreamID == 0 || padded && (len(data) == 0 || int(data[0]) >= len(data)) {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if padded {
		data = data[1 : len(data)-int(data[0])]
	}
	p.data = dataFrame{h, data}
	return &p.data, nil
}

func (p *parser) release() {
	p.in.Reset(nil)
	p.data = dataFrame{}
	parsers.Put(p)
}

// appendFrame appends the header of a frame to b.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, size int) []byte {
	b = append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendSettings(b []byte, settings ...http2.Setting) []byte {
	b = appendFrame(b, http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

func appendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameRSTStream, 0, stream, 4), uint32(code))
}

func appendWindowUpdate(b []byte, stream uint32, n int32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameWindowUpdate, 0, stream, 4), uint32(n))
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode) []byte {
	b = binary.BigEndian.AppendUint32(appendFrame(b, http2.FrameGoAway, 0, 0, 8), last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// appendBlock appends the frames of a header block.
func appendBlock(b []byte, stream uint32, block []byte, end bool) []byte {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), maxFrameSize)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(appendFrame(b, kind, flags, stream, n), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		kind, flags = http2.FrameContinuation, 0
	}
}
