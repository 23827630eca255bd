package socknotify

import (
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Buffers is a pool of buffers of one size, for receives that have none of their own while they wait:
// [Port.RecvPooled]. Any number of ports and goroutines may share it. What lies in it unused is the garbage
// collector's to take.
type Buffers struct{ pool port.BufferPool }

// NewBuffers returns a pool of buffers of so many bytes. A receive moves up to 256 KiB. With a pool of buffers
// without room, of size 0 or less, RecvPooled is ErrInvalid.
func NewBuffers(size int) *Buffers { return &Buffers{port.BufferPool{Size: size}} }

// Put gives back a buffer that [Overlapped.Buffer] has returned, or the beginning of it, once: it is another
// receive's from then on. Another slice that is as large serves as well; a smaller one, such as nil, is ignored.
func (p *Buffers) Put(b []byte) { p.pool.Put(b) }

// RecvPooled is Recv into a buffer that is taken from a pool when there is something to receive, and not
// before: any number of receives may wait without one. [Overlapped.Buffer] of the completed operation has what
// came. A datagram that does not fit is cut off (O14).
func (p *Port[K]) RecvPooled(s *sock.Socket, key K, pool *Buffers, o *Overlapped[K]) error {
	op := RecvPooledOp(s, key, pool, o)
	return p.startOp(&op)
}

// RecvPooledOp returns the operation that [Port.RecvPooled] starts.
func RecvPooledOp[K comparable](s *sock.Socket, key K, pool *Buffers, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpRecvPooled, socket: s, key: key, pool: pool, o: o}
}

// Buffer is what a completed receive of [Port.RecvPooled] has received: the caller's until he gives it back to
// the pool with [Buffers.Put]. It is nil where nothing was received. It may be called as Result may.
func (o *Overlapped[K]) Buffer() []byte {
	if o.op.Pool == nil {
		return nil
	}
	return o.op.Buf
}
