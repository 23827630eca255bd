package conn

import (
	"sync/atomic"
	"unsafe"
)

// A traffic counts the bytes that a server has received and sent. A connection does not know the
// worker that calls its handler, so the counters are in stripes, and a goroutine finds one by the
// address of its stack: goroutines that run at the same time have different stacks, and so mostly
// use different cache lines. Two that meet in a stripe count right, but more slowly.
type traffic [stripes]struct {
	in, out atomic.Uint64
	_       [112]byte // processors fetch cache lines in pairs
}

const (
	stripeBits = 5
	stripes    = 1 << stripeBits
)

// stripe returns the index of the stripe of the calling goroutine. The factor is that of Fibonacci
// hashing, and stacks are multiples of 2 KiB apart.
func stripe() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B1 >> (32 - stripeBits)
}

func (t *traffic) received(n int) {
	if n > 0 {
		t[stripe()].in.Add(uint64(n))
	}
}

func (t *traffic) sent(n int) {
	if n > 0 {
		t[stripe()].out.Add(uint64(n))
	}
}
