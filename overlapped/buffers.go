package overlapped

import "github.com/socknotify/socknotify/internal/kernel/operation"

// Buffers is a pool of buffers of one size, for [RecvPooled]. Any number of ports and goroutines may share it. The
// garbage collector may take buffers that lie in it unused.
type Buffers struct{ pool operation.BufferPool }

// NewBuffers returns a pool of buffers of size bytes. A receive moves up to 256 KiB. If size is 0 or less, RecvPooled
// with the pool is ErrInvalid.
func NewBuffers(size int) *Buffers { return &Buffers{operation.BufferPool{Size: size}} }

// Put returns a buffer to the pool: what [Op.Buffer] returned, or its beginning. It must be called once for each buffer, and
// the buffer must not be used afterwards.
// Any slice with the capacity of the pool's size may be put into it; a smaller one, such as nil, is ignored.
func (p *Buffers) Put(b []byte) { p.pool.Put(b) }
