package fakepsn

import (
	"math/rand/v2"
	"sync/atomic"
)

// Faults are the failures of a call. Each happens at random, on average once in the given number of times; 0 is never.
type Faults struct {
	// Call is a call that fails as a whole because of a lack of memory, and changes nothing.
	Call int
	// Entry is a registration that fails and changes nothing.
	Entry int
	// Early is a wait that times out too early, even if packets are queued.
	Early int
	// Half is a dequeue that returns fewer packets than are queued and fit into entries.
	Half int
	// Foreign queues a packet that belongs to no socket.
	Foreign int
	// Late queues a packet of a registration some time after its socket was closed.
	Late int
}

// dice choose when faults happen, if they are armed.
type dice struct {
	Faults
	armed atomic.Bool
	rand  *rand.Rand // under the kernel's lock
}

// Break starts or stops faults.
func (k *Kernel) Break(now bool) { k.dice.armed.Store(now) }

// NewBreaking returns a Kernel with faults, which do not happen before Break.
func NewBreaking(q Quirks, f Faults, seed uint64) *Kernel {
	k := New(q)
	k.dice.Faults, k.dice.rand = f, rand.New(rand.NewPCG(seed, 1))
	return k
}

func (d *dice) hit(oneIn int) bool {
	return oneIn > 0 && d.armed.Load() && d.rand.IntN(oneIn) == 0
}

// entryFault returns the result of a registration that fails, or 0.
func (d *dice) entryFault() uint32 {
	if !d.hit(d.Entry) {
		return ok
	}
	return []uint32{8, 1450, wsaNoBufs}[d.rand.IntN(3)]
}

// fewer returns the part of the room for packets that a dequeue uses.
func (d *dice) fewer(room int) int {
	if room > 1 && d.hit(d.Half) {
		return 1 + d.rand.IntN(room-1)
	}
	return room
}

// foreign returns the key of a packet that the backend has not posted. It is the key of no registration: those are at
// least 1<<20.
func (d *dice) foreign() uintptr { return uintptr(2 + d.rand.IntN(1<<10)) }
