package wire

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Decoder decodes the header blocks that a connection receives. Each block changes the table that later ones refer to, so
// all of them must be decoded. It is not safe for concurrent use, and must not be copied
// while a block is decoded.
type Decoder struct {
	hpack *hpack.Decoder
	block *block // nil unless frames of a block are to follow
}

// A block is a header block that is being received. Its frames are decoded as they arrive, so that a block that does not end
// costs no more than one that does.
type block struct {
	meta     http2.MetaHeadersFrame
	head     http2.HeadersFrame // without the fragment, which the framer owns
	received int                // bytes of frames
	left     int64              // what the decoded fields may still have
	regular  bool               // a regular field was decoded, and no pseudo header field may follow
	invalid  bool               // the request is malformed
}

// NewDecoder returns a Decoder with a table of up to table bytes. A name or value of more than maxString bytes is an error.
func NewDecoder(table uint32, maxString int) Decoder {
	d := Decoder{hpack: hpack.NewDecoder(table, ignore)}
	d.hpack.SetMaxStringLength(maxString)
	return d
}

// Begun reports whether a block has begun and not ended.
func (d *Decoder) Begun() bool { return d.block != nil }

// Drop forgets the block that has begun, which may have many fields. Nothing can be decoded after it.
func (d *Decoder) Drop() { d.block = nil }

// InOrder reports whether a frame may follow the frames before it, by its header: nothing comes between the frames of a block.
func (d *Decoder) InOrder(header []byte) bool {
	continues := http2.FrameType(header[3]) == http2.FrameContinuation
	return continues == d.Begun() && (!continues || StreamOf(header) == d.block.head.StreamID)
}

// Decode decodes the frames of header blocks, whose last frame becomes a MetaHeadersFrame, and any other one nil. It returns
// other frames as they are. The decoded fields may have maxList bytes, by RFC 9113's way to count (6.5.2); with more, the
// MetaHeadersFrame is Truncated.
func (d *Decoder) Decode(f Frame, maxList uint32) (Frame, error) {
	var fragment []byte
	var last bool
	switch f := f.(type) {
	case *http2.HeadersFrame:
		b := &block{left: int64(maxList)}
		b.head = http2.HeadersFrame{FrameHeader: f.FrameHeader, Priority: f.Priority}
		b.meta.HeadersFrame = &b.head
		d.hpack.SetEmitFunc(d.decoded)
		d.hpack.SetEmitEnabled(true)
		d.block = b
		fragment, last = f.HeaderBlockFragment(), f.HeadersEnded()
	case *http2.ContinuationFrame:
		switch { // nothing counts what follows
		case d.block.invalid:
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		case d.block.meta.Truncated:
			return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		fragment, last = f.HeaderBlockFragment(), f.HeadersEnded()
	default:
		return f, nil
	}
	b := d.block
	b.received += HeaderSize + int(f.Header().Length)
	if b.received > maxBlock(maxList) || int64(len(fragment)) > 2*b.left {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	_, err := d.hpack.Write(fragment)
	if err == nil && last {
		err = d.hpack.Close()
	}
	switch {
	case err != nil:
		return nil, http2.ConnectionError(http2.ErrCodeCompression)
	case !last:
		return nil, nil
	}
	d.block = nil
	d.hpack.SetEmitFunc(ignore) // a parked connection keeps the decoder
	if b.invalid || !validPseudos(b.meta.PseudoFields()) {
		return nil, http2.StreamError{StreamID: b.head.StreamID, Code: http2.ErrCodeProtocol}
	}
	return &b.meta, nil
}

// maxBlock bounds the frames of a header block. A longer one would be too large also when it is decoded.
func maxBlock(maxList uint32) int {
	n := int(maxList)
	return n + n/4 + MaxSize
}

func ignore(hpack.HeaderField) {}

// decoded is called for each field that was decoded.
func (d *Decoder) decoded(f hpack.HeaderField) {
	b := d.block
	pseudo := f.IsPseudo()
	b.invalid = !httpguts.ValidHeaderFieldValue(f.Value) || pseudo && b.regular || !pseudo && !validName(f.Name)
	b.regular = b.regular || !pseudo
	size := int64(f.Size())
	if f.Name == "trailer" { // each name in it becomes an entry of a map
		size += int64(strings.Count(f.Value, ",")) * int64(hpack.HeaderField{}.Size())
	}
	b.left -= size
	b.meta.Truncated = b.left < 0
	if b.invalid || b.meta.Truncated {
		d.hpack.SetEmitEnabled(false)
		return
	}
	b.meta.Fields = append(b.meta.Fields, f)
}

// validName reports whether a field name is a token in lower case.
func validName(name string) bool {
	return httpguts.ValidHeaderFieldName(name) && name == strings.ToLower(name)
}

// HasField reports whether one of the fields has the name.
func HasField(fields []hpack.HeaderField, name string) bool {
	return slices.ContainsFunc(fields, func(f hpack.HeaderField) bool { return f.Name == name })
}

var requestPseudos = []string{":method", ":path", ":scheme", ":authority", ":protocol"}

// validPseudos reports whether pseudo header fields are those of a request, and none is repeated.
func validPseudos(fields []hpack.HeaderField) bool {
	for i, f := range fields {
		if HasField(fields[:i], f.Name) || !slices.Contains(requestPseudos, f.Name) {
			return false
		}
	}
	return true
}
