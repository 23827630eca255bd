package overlapped

import (
	"bytes"
	"unsafe"
)

const (
	// guard is the number of bytes before and after a buffer that must not be written.
	guard    = 64
	sentinel = 0xc5
	// alignment is that of all that a direct read or write needs aligned.
	alignment = 4096
	// maxFileOp is the longest buffer.
	maxFileOp = 1<<20 + 3*alignment
)

var sentinels = bytes.Repeat([]byte{sentinel}, maxFileOp+2*guard)

// A guardedBuffer is where the buffers of an operation are, one at a time. It tells who has written there.
type guardedBuffer struct {
	memory []byte
	around []byte // the latest buffer, and its guards
}

// buffer returns the next. An aligned one can be read into, and written from, directly.
func (g *guardedBuffer) buffer(n int, aligned bool) []byte {
	if g.memory == nil {
		g.memory = make([]byte, maxFileOp+2*guard+2*alignment)
	}
	at := guard
	if aligned {
		first := uintptr(unsafe.Pointer(&g.memory[guard]))
		at += int((alignment - first%alignment) % alignment)
	}
	g.around = g.memory[at-guard : at+n+guard]
	g.clear()
	return g.around[guard : guard+n : guard+n]
}

// clear fills it with what intact looks for.
func (g *guardedBuffer) clear() { copy(g.around, sentinels) }

// intact reports whether neither the buffer nor the bytes beside it have been written since it was cleared.
func (g *guardedBuffer) intact() bool { return bytes.Equal(g.around, sentinels[:len(g.around)]) }

// inside reports whether the bytes beside it have not been written.
func (g *guardedBuffer) inside() bool {
	end := len(g.around) - guard
	return bytes.Equal(g.around[:guard], sentinels[:guard]) && bytes.Equal(g.around[end:], sentinels[:guard])
}
