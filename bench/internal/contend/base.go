package contend

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// A group is the bytes of some pairs, which one goroutine at a time hands on. All are on the same side.
type group struct {
	taken       atomic.Bool
	side        int
	first, last int // pairs
	_           [96]byte
}

// base is the CPU time of handing a byte on, without an event core, by as many goroutines as handle events and
// in batches of theirs. The sockets travel between processors as they do there. No byte is left.
func (t *tokens) base(goroutines, batch int) float64 {
	t.begin()
	start := cpu()
	passes := t.passAll(goroutines, batch)
	used := cpu() - start
	t.drain()
	return float64(used) / float64(passes)
}

// passAll hands bytes on that begin has given, so many times as to tell what that costs.
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

// passSome is one goroutine's turn. Which group is next is left to chance, so that half of what one of two
// processors comes upon was the other's, as with a shared epoll descriptor; in a fixed order they could fall
// into step. A goroutine that is preempted keeps its group from the others, so a turn ends before that happens.
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

// drain takes all bytes, and tells how many there were.
func (t *tokens) drain() (taken int) {
	var buf [8]byte
	for k := range t.active {
		if t.take(k, &buf) {
			taken++
		}
	}
	return taken
}
