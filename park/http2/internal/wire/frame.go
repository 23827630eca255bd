// Package wire has the frames of HTTP/2 (RFC 9113, 4 and 6) and their header blocks (RFC 7541), as bytes. It knows no
// streams. Its errors are those of golang.org/x/net/http2: a StreamError is an error of its stream, and any other one ends
// the connection.
//
//	frame.go   a frame is measured, parsed and appended
//	decode.go  the header block of a request, frame by frame
//	encode.go  the header block of a response
package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/net/http2"
)

// MaxSize is the longest payload that is sent. No side may allow less (RFC 9113, 6.5.2).
const MaxSize = 16 << 10

// HeaderSize is the number of bytes before a frame's payload.
const HeaderSize = 9

// Measure returns the length of the frame at the beginning of b, or 0 if there is only a part of it.
func Measure(b []byte, maxFrame int) (int, error) {
	if len(b) < HeaderSize {
		return 0, nil
	}
	size := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	switch {
	case size > maxFrame:
		return 0, http2.ConnectionError(http2.ErrCodeFrameSize)
	case len(b) < HeaderSize+size:
		return 0, nil
	}
	return HeaderSize + size, nil
}

// StreamOf returns the stream of a frame by its header.
func StreamOf(header []byte) uint32 { return binary.BigEndian.Uint32(header[5:]) &^ (1 << 31) }

// A Frame is an http2.Frame other than a DATA frame, or a *DataFrame.
type Frame interface{ Header() http2.FrameHeader }

// A DataFrame is a DATA frame. A Framer would copy its payload.
type DataFrame struct {
	http2.FrameHeader
	Data []byte // without padding
}

// A Parser is a Framer for frames that are complete, so that it never waits. It has no state of a connection.
type Parser struct {
	in     bytes.Reader
	framer *http2.Framer
	data   DataFrame
}

var parsers = sync.Pool{New: func() any {
	p := new(Parser)
	p.framer = http2.NewFramer(io.Discard, &p.in)
	p.framer.SetReuseFrames()
	p.framer.AllowIllegalReads = true // Decoder.InOrder checks the order
	return p
}}

// GetParser returns a Parser for frames whose payload is no longer than maxFrame. Release gives it back.
func GetParser(maxFrame int) *Parser {
	p := parsers.Get().(*Parser)
	p.framer.SetMaxReadFrameSize(uint32(maxFrame))
	return p
}

// Parse parses a frame, which Measure has found whole. The result is valid until the next call, and while b is not changed.
func (p *Parser) Parse(b []byte) (Frame, error) {
	if http2.FrameType(b[3]) == http2.FrameData {
		return p.parseData(b)
	}
	p.in.Reset(b)
	return p.framer.ReadFrame()
}

// parseData parses a DATA frame (RFC 9113, 6.1).
func (p *Parser) parseData(b []byte) (Frame, error) {
	data := b[HeaderSize:]
	h := http2.FrameHeader{Type: http2.FrameData, Flags: http2.Flags(b[4]), Length: uint32(len(data)), StreamID: StreamOf(b)}
	padded := h.Flags.Has(http2.FlagDataPadded)
	if h.StreamID == 0 || padded && (len(data) == 0 || int(data[0]) >= len(data)) {
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if padded {
		data = data[1 : len(data)-int(data[0])]
	}
	p.data = DataFrame{h, data}
	return &p.data, nil
}

// Release gives the Parser back. It must not be used after it.
func (p *Parser) Release() {
	p.in.Reset(nil)
	p.data = DataFrame{}
	parsers.Put(p)
}

// AppendFrame appends the header of a frame to b.
func AppendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, size int) []byte {
	b = append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

// AppendSettings appends a SETTINGS frame to b.
func AppendSettings(b []byte, settings ...http2.Setting) []byte {
	b = AppendFrame(b, http2.FrameSettings, 0, 0, 6*len(settings))
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}

// AppendReset appends a RST_STREAM frame to b.
func AppendReset(b []byte, stream uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(AppendFrame(b, http2.FrameRSTStream, 0, stream, 4), uint32(code))
}

// AppendWindowUpdate appends a WINDOW_UPDATE frame to b.
func AppendWindowUpdate(b []byte, stream uint32, n int32) []byte {
	return binary.BigEndian.AppendUint32(AppendFrame(b, http2.FrameWindowUpdate, 0, stream, 4), uint32(n))
}

// AppendGoAway appends a GOAWAY frame to b.
func AppendGoAway(b []byte, last uint32, code http2.ErrCode) []byte {
	b = binary.BigEndian.AppendUint32(AppendFrame(b, http2.FrameGoAway, 0, 0, 8), last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}
