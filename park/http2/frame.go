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

// A unit is what is handled at once: a frame, or the HEADERS frame and the CONTINUATION frames of a header block. measure
// returns the length of the unit at the beginning of b, or 0 if there is only a part of it. from is where measure had come
// to in the same unit, and next where it has come to now, so that a block in many pieces is not measured from its beginning
// for each of them.
func measure(b []byte, from, maxBlock int) (length, next int, err error) {
	for {
		if len(b) < from+frameHeader {
			return 0, from, nil
		}
		h := b[from:]
		size := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
		kind, flags := http2.FrameType(h[3]), http2.Flags(h[4])
		switch {
		case size > maxFrameSize:
			return 0, from, http2.ConnectionError(http2.ErrCodeFrameSize)
		case from > 0 && (kind != http2.FrameContinuation || streamOf(h) != streamOf(b)):
			return 0, from, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		end := from + frameHeader + size
		block := kind == http2.FrameHeaders || from > 0
		if block && end > maxBlock {
			return 0, from, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		if len(b) < end {
			return 0, from, nil
		}
		if !block || flags.Has(http2.FlagHeadersEndHeaders) {
			return end, 0, nil
		}
		from = end
	}
}

func streamOf(header []byte) uint32 { return binary.BigEndian.Uint32(header[5:]) &^ (1 << 31) }

// A parser is a Framer for units that are complete, so that it never waits.
type parser struct {
	in     bytes.Reader
	framer *http2.Framer
}

var parsers = sync.Pool{New: func() any {
	p := new(parser)
	p.framer = http2.NewFramer(io.Discard, &p.in)
	p.framer.SetReuseFrames()
	p.framer.SetMaxReadFrameSize(maxFrameSize)
	return p
}}

// parse parses a unit. The frame is valid until the next call. After a connection error p must not be used again.
func (p *parser) parse(unit []byte) (http2.Frame, error) {
	p.in.Reset(unit)
	return p.framer.ReadFrame()
}

// release returns p to the pool. p must not have returned a connection error.
func (p *parser) release() {
	p.in.Reset(nil)
	p.framer.ReadMetaHeaders = nil
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
