package http2

import (
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

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

// inOrder reports whether a frame may follow the frames before it, by its header: nothing comes between the frames of a block.
func (c *conn) inOrder(header []byte) bool {
	continues := http2.FrameType(header[3]) == http2.FrameContinuation
	return continues == (c.block != nil) && (!continues || streamOf(header) == c.block.head.StreamID)
}

// decode decodes the frames of header blocks, whose last frame becomes a MetaHeadersFrame, and any other one nil. It returns
// other frames as they are.
func (c *conn) decode(f frame) (frame, error) {
	var fragment []byte
	var last bool
	switch f := f.(type) {
	case *http2.HeadersFrame:
		c.block = &block{left: int64(c.server.maxHeaderList())}
		c.block.head = http2.HeadersFrame{FrameHeader: f.FrameHeader, Priority: f.Priority}
		c.block.meta.HeadersFrame = &c.block.head
		c.decoder.SetEmitFunc(c.decoded)
		c.decoder.SetEmitEnabled(true)
		fragment, last = f.HeaderBlockFragment(), f.HeadersEnded()
	case *http2.ContinuationFrame:
		switch { // nothing counts what follows
		case c.block.invalid:
			return nil, http2.ConnectionError(http2.ErrCodeProtocol)
		case c.block.meta.Truncated:
			return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		fragment, last = f.HeaderBlockFragment(), f.HeadersEnded()
	default:
		return f, nil
	}
	b := c.block
	b.received += frameHeader + int(f.Header().Length)
	if b.received > c.server.maxBlock() || int64(len(fragment)) > 2*b.left {
		return nil, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	_, err := c.decoder.Write(fragment)
	if err == nil && last {
		err = c.decoder.Close()
	}
	switch {
	case err != nil:
		return nil, http2.ConnectionError(http2.ErrCodeCompression)
	case !last:
		return nil, nil
	}
	c.block = nil
	c.decoder.SetEmitFunc(ignore) // a parked connection keeps the decoder
	if b.invalid || !validPseudos(b.meta.PseudoFields()) {
		return nil, http2.StreamError{StreamID: b.head.StreamID, Code: http2.ErrCodeProtocol}
	}
	return &b.meta, nil
}

func ignore(hpack.HeaderField) {}

// decoded is called for each field that was decoded.
func (c *conn) decoded(f hpack.HeaderField) {
	b := c.block
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
		c.decoder.SetEmitEnabled(false)
		return
	}
	b.meta.Fields = append(b.meta.Fields, f)
}

// validName reports whether a field name is a token in lower case.
func validName(name string) bool {
	return httpguts.ValidHeaderFieldName(name) && name == strings.ToLower(name)
}

// hasField reports whether one of the fields has the name.
func hasField(fields []hpack.HeaderField, name string) bool {
	return slices.ContainsFunc(fields, func(f hpack.HeaderField) bool { return f.Name == name })
}

var requestPseudos = []string{":method", ":path", ":scheme", ":authority", ":protocol"}

// validPseudos reports whether pseudo header fields are those of a request, and none is repeated.
func validPseudos(fields []hpack.HeaderField) bool {
	for i, f := range fields {
		if hasField(fields[:i], f.Name) || !slices.Contains(requestPseudos, f.Name) {
			return false
		}
	}
	return true
}
