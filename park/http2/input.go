package http2

import (
	"sync"
)

// An input is what was received and not handled: buf[:end].
type input struct {
	buf    []byte
	end    int
	pooled []byte
	bulk   bool // large DATA frames have arrived
	moved  bool // something has arrived since the read deadline was set
}

var largeInBuffers = sync.Pool{New: func() any { return new([largeIn]byte) }}

// largeIn is the size of the buffer for frames that do not fit into the small one: for a large body, a client needs less of
// the server's CPU time with frames of this size than with smaller ones. A connection that fills the small buffer with DATA
// frames of at least bulkFrame bytes has it too, so that one Read receives several of them. Of small frames the small buffer
// has enough.
const (
	largeIn   = 64 << 10
	bulkFrame = 4 << 10
)

// grow makes b have a large buffer, if what b holds fits into it.
func (b *input) grow() {
	if len(b.pooled) < largeIn && b.end < largeIn {
		large := largeInBuffers.Get().(*[largeIn]byte)
		copy(large[:], b.buf[:b.end])
		b.buf, b.pooled = large[:], large[:]
	}
}

// shrink gives a large buffer back. b must not be used after it.
func (b *input) shrink() {
	if len(b.pooled) == largeIn {
		largeInBuffers.Put((*[largeIn]byte)(b.pooled))
	}
}

// free returns the space for the next Read, which is not empty. A frame needs more than a large buffer has only if
// MaxReadFrameSize is larger.
func (b *input) free() []byte {
	if b.end == len(b.buf) {
		b.grow()
	}
	if b.end == len(b.buf) {
		b.buf = append(b.buf, make([]byte, len(b.buf))...)
	}
	return b.buf[b.end:]
}

// consumed removes the first n bytes.
func (b *input) consumed(n int) {
	if b.end -= n; n > 0 && b.end <= len(b.pooled) {
		copy(b.pooled, b.buf[n:n+b.end])
		b.buf = b.pooled
	} else {
		copy(b.buf, b.buf[n:n+b.end])
	}
}
