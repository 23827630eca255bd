package wire

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A Header is what a header block of a response is made of.
type Header struct {
	Status int // 0 for trailers
	Fields http.Header
}

// An Encoder encodes the header blocks of a connection, in the order in which they are sent. It is not safe for concurrent
// use.
type Encoder struct {
	own     *encoder // nil if there is no table
	noTable bool     // the client knows that; not used with a table
}

// An encoder encodes header blocks.
type encoder struct {
	buf   bytes.Buffer
	hpack *hpack.Encoder
}

func newEncoder() *encoder {
	e := new(encoder)
	e.hpack = hpack.NewEncoder(&e.buf)
	return e
}

// encoders holds encoders without a dynamic table, which belong to no connection.
var encoders = sync.Pool{New: func() any {
	e := newEncoder()
	e.hpack.SetMaxDynamicTableSize(0)
	e.hpack.WriteField(hpack.HeaderField{Name: "date"}) // after the change of the table's size, which Append sends
	return e
}}

// NewEncoder returns an Encoder whose table has up to limit bytes, or that has none if limit is 0.
func NewEncoder(limit uint32) (e Encoder) {
	if limit > 0 {
		e.own = newEncoder()
		e.own.hpack.SetMaxDynamicTableSizeLimit(limit)
	}
	return e
}

// Resize changes the size of the table to what the peer permits, but not above the limit.
func (e *Encoder) Resize(n uint32) {
	if e.own != nil {
		e.own.hpack.SetMaxDynamicTableSize(n)
	}
}

// Append appends the frames of a header block to b.
func (e *Encoder) Append(b []byte, stream uint32, h *Header, end bool) []byte {
	enc := e.own
	if enc == nil {
		enc = encoders.Get().(*encoder)
		defer encoders.Put(enc)
	}
	enc.buf.Reset()
	if e.own == nil && !e.noTable {
		e.noTable = true
		enc.buf.WriteByte(0x20) // a table of size 0 (RFC 7541, 6.3)
	}
	enc.header(h)
	b = appendBlock(b, stream, enc.buf.Bytes(), end)
	if e.own != nil && enc.buf.Cap() > 1<<10 {
		enc.buf = bytes.Buffer{} // the connection keeps it while it is parked
	}
	return b
}

func (e *encoder) header(h *Header) {
	if h.Status != 0 {
		e.hpack.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(h.Status)})
	}
	for name, values := range h.Fields {
		switch name {
		case "Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive":
			continue // RFC 9113 (8.2.2) forbids them
		case "Content-Length":
			if h.Status < 200 {
				continue
			}
		}
		e.field(name, values)
	}
}

// field writes a header field, unless it is not valid in HTTP/2. Values are trimmed, as in HTTP/1.1.
func (e *encoder) field(name string, values []string) {
	lower := strings.ToLower(name)
	if !httpguts.ValidHeaderFieldName(lower) || strings.HasPrefix(name, http.TrailerPrefix) {
		return
	}
	for _, value := range values {
		value = textproto.TrimString(value)
		if httpguts.ValidHeaderFieldValue(value) && (lower != "te" || value == "trailers") {
			e.hpack.WriteField(hpack.HeaderField{Name: lower, Value: value})
		}
	}
}

// appendBlock appends the frames of a header block.
func appendBlock(b []byte, stream uint32, block []byte, end bool) []byte {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), MaxSize)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		b = append(AppendFrame(b, kind, flags, stream, n), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		kind, flags = http2.FrameContinuation, 0
	}
}
