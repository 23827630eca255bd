package server

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// A shard is one of Ports with its workers, and the connections that are registered there. By
// default there is one for each worker, because a port that several workers share costs a hand-over
// between them for most notifications. The fields are under the server's lock.
type shard struct {
	conns int // their number
	last  workload
	// helped is not 0 while the shard has one more worker, because its connections wait for each
	// other while another shard is idle: the tick from which one of its workers ends. It is changed
	// under the server's lock.
	helped *atomic.Uint64
}

const (
	// helpFor is the time for which a shard has one more worker, after it was last found to need
	// one.
	helpFor = 4 // ticks
	// slowBatch is the time that a batch takes if a handler blocks. It may also take that long
	// because the system has preempted its thread, so a shard is slow only if such batches take a
	// fifth of its time.
	slowBatch = time.Millisecond
)

// A workload is what a worker, or a shard, has done since the latest tick of the watchdog.
type workload struct {
	spent   time.Duration // in the calls of handlers, and between them
	slow    time.Duration // the part of it in batches that took slowBatch or longer
	crowded bool          // notifications were dequeued together, so that one waited for another
}

func (l *workload) add(d time.Duration, n int) {
	l.spent += d
	if d >= slowBatch {
		l.slow += d
	}
	l.crowded = l.crowded || n > 1
}

// handles is the number of handles in a row that belong to one shard. A port has a table with pages
// of that many handles, so the other ports then need no page for them.
const handles = 64

// deal returns the index of the shard for a new connection: the one that its handle belongs to, or
// the one with the fewest connections if the first has many more. The server's lock is held.
func (s *server) deal(handle uintptr) int {
	own, least := int(handle/handles)%len(s.shards), 0
	for i := range s.shards {
		if s.shards[i].conns < s.shards[least].conns {
			least = i
		}
	}
	if mean := len(s.table) / len(s.shards); s.shards[own].conns-s.shards[least].conns > mean/4 {
		return least
	}
	return own
}

// balance gives one more worker to the shards that need one. No connection waits for long behind
// others while the worker of another shard is idle. The watchdog calls it once a tick, with the
// server's lock held.
func (s *server) balance() {
	if !s.balances {
		return
	}
	now := engine.Elapsed()
	interval := now - s.balanced
	s.balanced = now
	for i := range s.shards {
		s.shards[i].last = workload{}
	}
	for w := range s.workers {
		w.Mu.Lock()
		l := w.workload
		w.workload = workload{}
		if w.Busy {
			l.add(now-w.started, w.n)
		}
		w.Mu.Unlock()
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
		l.crowded = l.crowded || s.shards[i].helped.Load() != 0
		if l.needsHelp(idlest, interval) {
			s.help(i)
		}
	}
}

// needsHelp reports whether another worker is to serve a shard that has done l in an interval of
// the watchdog. idlest is the time that the idlest shard has spent.
func (l *workload) needsHelp(idlest, interval time.Duration) bool {
	return l.crowded && idlest < l.spent/2 && (l.slow >= interval/5 || l.spent >= interval*9/10)
}

// help gives a shard one more worker for a time, or extends that time. The server's lock is held.
func (s *server) help(i int) {
	helped, until := s.shards[i].helped, s.Wheel.Now()+helpFor
	switch {
	case helped.Load() != 0:
		helped.Store(until)
	case len(s.workers) < s.opts.MaxRunning:
		helped.Store(until)
		s.addWorker(i, nil)
	}
}

// endHelp reports whether a worker is to end because the time of the shard's help is over.
func (s *server) endHelp(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := s.shards[w.shard].helped.Load()
	if until == 0 || s.Wheel.Now() < until {
		return false
	}
	s.shards[w.shard].helped.Store(0)
	return true
}

// addWorker starts a worker of a shard. If there is a worker that is in the call of a handler, the
// new one takes its place: it handles the notifications that the other has not begun, and releases
// the connections that the other still owns, except that of the call. The other ends when the call
// returns. The locks of the server and of that worker are held.
func (s *server) addWorker(shard int, late *worker) {
	w := &worker{server: s, port: s.Ports[shard], shard: uint16(shard), most: conn.Batch}
	w.alone = s.opts.Workers == s.opts.Shards && s.shards[shard].helped.Load() == 0
	if s.balances {
		w.most = 1 // until its batches are known not to be slow
	}
	if late != nil {
		late.Replaced = true
		w.keeps, w.started = late.keeps, late.started
		at := max(late.next-1, 0) // the notification that is being handled
		w.next = copy(w.ready[:], late.ready[late.kept:at])
		w.n = w.next + copy(w.ready[w.next:], late.ready[late.next:late.n])
		clear(late.ready[late.kept:at])
		clear(late.ready[late.next:late.n])
		late.n = late.next
		w.Begin(s.Wheel.Now())
	}
	s.workers[w] = struct{}{}
	s.Running.Add(1)
	go w.run()
}

// Watch is the watchdog. The wheel calls it with every tick while there are connections.
func (s *server) Watch() {
	d := engine.Watchdog{Now: uint32(s.Wheel.Now()), After: s.opts.StuckAfter}
	defer d.Log(&s.Journal)
	var conns []*conn.Conn
	defer func() { // what a late handler has written does not wait for its return
		for _, c := range conns {
			c.SendGathered()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.table) == 0 {
		return
	}
	s.balance()
	late := false
	for w := range s.workers {
		w.Mu.Lock()
		if d.Late(&w.Activity) {
			late = true
			if len(s.workers) < s.opts.MaxRunning {
				s.addWorker(int(w.shard), w)
			}
		}
		w.Mu.Unlock()
	}
	if late {
		conns = slices.Clone(s.table)
	}
	s.Counts.Stuck.Add(uint64(d.Stuck()))
	s.SetTicker(0)
}
