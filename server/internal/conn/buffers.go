package conn

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
)

// A buffer is a piece of memory for the input or the output of a connection.
type buffer struct {
	b    []byte
	next *buffer // in a list of buffers
}

// DefaultBuffer is the default of Options.BufferSize.
const DefaultBuffer = 64 << 10

const (
	smallestBuffer = 9  // log2 of the bytes of the smallest buffer that buffers has
	largestBuffer  = 20 // and of the largest that it keeps
)

// buffers are pools of buffers whose sizes are powers of two.
type buffers struct {
	pools [largestBuffer + 1]sync.Pool
}

// get returns a buffer of at least n bytes.
func (p *buffers) get(n int) *buffer {
	k := max(bits.Len(uint(max(n, 1)-1)), smallestBuffer)
	if k > largestBuffer {
		return &buffer{b: make([]byte, n)}
	}
	if b, ok := p.pools[k].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 1<<k)}
}

// put takes back the buffers of a list. Large ones are left to the garbage collector.
func (p *buffers) put(list *buffer) {
	for b := list; b != nil; {
		next := b.next
		b.next = nil
		if len(b.b) <= 1<<largestBuffer {
			p.pools[bits.Len(uint(len(b.b)-1))].Put(b)
		}
		b = next
	}
}

// tlsBuffers have 32 KiB, with the fields of a Buffer.
var tlsBuffers = tlsrecord.NewBuffers(func() *tlsrecord.Buffer {
	b := new(struct {
		tlsrecord.Buffer
		room [32<<10 - unsafe.Sizeof(tlsrecord.Buffer{})]byte
	})
	b.B = b.room[:]
	return &b.Buffer
})
