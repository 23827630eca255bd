package server

import (
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// A shard is a port of the server with its workers and the connections that are registered there. By default there is one
// for each worker, because a port that several workers share costs a hand-over between them for most notifications. The
// fields are under the server's lock.
type shard struct {
	*socknotify.Port[*Key]
	conns  int
	helper *worker // a second worker, while the connections of this shard wait for each other and another shard is idle
	last   workload
}

const (
	// helpFor is the time for which a shard has a helper, after it was last found to need one.
	helpFor = 4 // ticks
	// slowBatch is the time that a batch takes if a handler blocks. It may also take that long because the system has
	// preempted its thread, so a shard is slow only if such batches take a fifth of its time.
	slowBatch = time.Millisecond
)

// A workload is what a worker, or a shard, has done since the latest tick of the watchdog.
type workload struct {
	spent   time.Duration // in the calls of handlers, and between them
	slow    time.Duration // the part of it in batches that took slowBatch or longer
	crowded bool          // several notifications were dequeued together, so that one waited for another
}

func (l *workload) add(d time.Duration, n int) {
	l.spent += d
	if d >= slowBatch {
		l.slow += d
	}
	l.crowded = l.crowded || n > 1
}

// handles is the number of handles in a row that belong to one shard. A port has a table with pages of that many handles, so
// the other ports then need no page for them.
const handles = 64

// deal returns the index of the shard for a new connection: the one that its handle belongs to, or the one with the fewest
// connections if the first has many more. The server's lock is held.
func (s *server) deal(handle uintptr) int {
	own, least := int(handle/handles)%len(s.shards), 0
	for i := range s.shards {
		if s.shards[i].conns < s.shards[least].conns {
			least = i
		}
	}
	if mean := s.table.n / len(s.shards); s.shards[own].conns-s.shards[least].conns > mean/4 {
		return least
	}
	return own
}

// balance starts helpers for the shards that need one. No connection waits for long behind others while the worker of
// another shard is idle. The watchdog calls it once a tick, with the server's lock held.
func (s *server) balance() {
	if !s.balances {
		return
	}
	now := s.elapsed()
	interval := now - s.balanced
	s.balanced = now
	for i := range s.shards {
		s.shards[i].last = workload{}
	}
	for w := range s.workers {
		w.mu.Lock()
		l := w.workload
		w.workload = workload{}
		if w.busy {
			l.add(now-w.started, w.n)
		}
		w.mu.Unlock()
		to := &s.shards[w.shard].last
		to.spent = max(to.spent, min(l.spent, interval))
		to.slow = max(to.slow, l.slow)
		to.crowded = to.crowded || l.crowded
	}
	idlest := interval
	for i := range s.shards {
		idlest = min(idlest, s.shards[i].last.spent)
	}
	for i := range s.shards {
		l := &s.shards[i].last
		l.crowded = l.crowded || s.shards[i].helper != nil
		if l.needsHelp(idlest, interval) {
			s.help(i)
		}
	}
}

// needsHelp reports whether another worker is to serve a shard that has done l in an interval of the watchdog. idlest is the
// time that the idlest shard has spent.
func (l *workload) needsHelp(idlest, interval time.Duration) bool {
	return l.crowded && idlest < l.spent/2 && (l.slow >= interval/5 || l.spent >= interval*9/10)
}

// help gives a shard a helper, or keeps the one that it has. The server's lock is held.
func (s *server) help(i int) {
	until := s.wheel.Now() + helpFor
	if h := s.shards[i].helper; h != nil {
		h.help.Store(until)
		return
	}
	s.sharePort(i, true)
	h := &worker{server: s, port: s.shards[i].Port, shard: uint16(i), most: 1, help: new(atomic.Uint64)}
	h.help.Store(until)
	s.shards[i].helper = h
	s.addWorker(h)
}

// sharePort notes whether the workers of a shard share its port with a helper. The server's lock is held.
func (s *server) sharePort(i int, shared bool) {
	for w := range s.workers {
		if int(w.shard) == i && w.help == nil {
			w.mu.Lock()
			w.alone = !shared
			w.mu.Unlock()
		}
	}
}
