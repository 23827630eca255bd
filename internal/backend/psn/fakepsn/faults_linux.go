package fakepsn

import (
	"math/rand/v2"
	"sync/atomic"
)

// Faults are what may go wrong with a call, each once in so many times, at random; 0 is never.
type Faults struct {
	// Call fails as a whole, having changed nothing, for want of memory.
	Call int
	// Entry is a registration that fails, having changed nothing.
	Entry int
	// Early is a wait that times out before its time, whatever is queued.
	Early int
	// Half is a dequeue that returns fewer packets than there are, and than there is room for.
	Half int
	// Foreign puts a packet into the queue that is of no socket.
	Foreign int
	// Late delivers a packet of a registration whose socket was closed, some time afterwards.
	Late int
}

// dice throw for faults, once they are armed.
type dice struct {
	Faults
	armed atomic.Bool
	rand  *rand.Rand // under the kernel's lock
}

// Break lets faults happen, from now on or no more.
func (k *Kernel) Break(now bool) { k.dice.armed.Store(now) }

// NewBreaking makes a kernel with faults, that do not happen before Break.
func NewBreaking(q Quirks, f Faults, seed uint64) *Kernel {
	k := New(q)
	k.dice.Faults, k.dice.rand = f, rand.New(rand.NewPCG(seed, 1))
	return k
}

func (d *dice) hit(oneIn int) bool {
	return oneIn > 0 && d.armed.Load() && d.rand.IntN(oneIn) == 0
}

// entryFault is the result of a registration that fails, or 0.
func (d *dice) entryFault() uint32 {
	if !d.hit(d.Entry) {
		return ok
	}
	return []uint32{8, 1450, wsaNoBufs}[d.rand.IntN(3)]
}

// fewer is how much of so much room is used.
func (d *dice) fewer(room int) int {
	if room > 1 && d.hit(d.Half) {
		return 1 + d.rand.IntN(room-1)
	}
	return room
}

// foreign is the key of a packet that somebody else has posted. It is no registration's: those begin at 1<<20.
func (d *dice) foreign() uintptr { return uintptr(2 + d.rand.IntN(1<<10)) }
