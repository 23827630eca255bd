package contend

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// A group has the bytes of some pairs, all on the same side. One goroutine at a time passes them on.
type group struct {
	taken       atomic.Bool
	side        int
	first, last int // pairs
	_           [96]byte
}

// base returns the CPU time of passing a byte on without an event core. As many goroutines as handle events do it, in
// batches of the same size, so the sockets move between processors as in the workload. No byte is left afterwards.
func (t *tokens) base(goroutines, batch int) float64 {
	t.begin()
	start := cpu()
	passes := t.passAll(goroutines, batch)
	used := cpu() - start
	t.drain()
	return float64(used) / float64(passes)
}

// passAll passes on the bytes that begin has written, often enough to measure the cost.
func (t *tokens) passAll(goroutines, batch int) int64 {
	const enough = 40_000
	pairs := t.active / 2
	groups := make([]group, (pairs+batch-1)/batch)
	for i := range groups {
		groups[i].first, groups[i].last = i*batch, min((i+1)*batch, pairs)
	}
	var passed atomic.Int64
	work := func() {
		for passed.Add(t.passSome(groups)) < enough {
			runtime.Gosched()
		}
	}
	var running sync.WaitGroup
	for range goroutines - 1 {
		running.Go(work)
	}
	work()
	running.Wait()
	return passed.Load()
}

// passSome runs in one goroutine. The next group is random, so that on two processors half of the groups were last used
// by the other processor, as with a shared epoll descriptor. In a fixed order the processors could synchronize. A
// goroutine that is preempted blocks its group, so it returns before that happens.
func (t *tokens) passSome(groups []group) (passed int64) {
	var buf [8]byte
	for range 64 {
		g := &groups[rand.IntN(len(groups))]
		if g.taken.Swap(true) {
			continue
		}
		for pair := g.first; pair < g.last; pair++ {
			passed += t.pass(2*pair+g.side, &buf)
		}
		g.side ^= 1
		g.taken.Store(false)
	}
	return passed
}

// drain reads all bytes and returns their number.
func (t *tokens) drain() (taken int) {
	var buf [8]byte
	for k := range t.active {
		if t.take(k, &buf) {
			taken++
		}
	}
	return taken
}
