package operation

import (
	"sync"
	"unsafe"
)

// A BufferPool is a pool of buffers of one size.
type BufferPool struct {
	Size int
	free sync.Pool // of *byte: the first of size bytes
}

// Put gives a buffer back. One without room for size bytes is ignored.
func (p *BufferPool) Put(b []byte) {
	if p.Size > 0 && cap(b) >= p.Size {
		p.free.Put(unsafe.SliceData(b))
	}
}

func (p *BufferPool) get() []byte {
	b, _ := p.free.Get().(*byte)
	if b == nil {
		return make([]byte, p.Size)
	}
	return unsafe.Slice(b, p.Size)
}
