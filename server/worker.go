package server

import (
	"cmp"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// A worker is one of the goroutines that serve.
type worker struct {
	server *server
	port   *socknotify.Port[*Key]
	shard  uint16 // index of the port
	owner  conn.Owner

	// ready[:n] was dequeued. ready[next:n] is not begun, ready[next-1] may be in the call of a
	// handler, and the worker still owns the connections of ready[kept:next-1], which it releases
	// together at the end.
	//
	// While the worker is busy these fields change with Activity.Mu held. So while a handler does
	// not return, the watchdog can move all of ready except ready[next-1] to another worker (see
	// addWorker). While the worker is idle, only the worker uses them.
	ready         [conn.Batch]socknotify.Notification[*Key]
	n, next, kept int
	most          int // to dequeue at a time while the port is shared: few after a slow batch
	engine.Activity
	alone bool // the port has no other worker, except replaced ones

	// Only if each shard has one worker, under Activity.Mu:
	started  time.Duration // when the batch was dequeued, by the server's clock; where Busy
	workload               // of the batches that are over

	calls uint64 // of Data, except those in owner; under Activity.Mu
	keeps bool   // the connections of this batch are released together at its end
}

// claim returns the index of the next notification to handle. If there is none the worker is idle.
func (w *worker) claim(now uint64) (i int, ok bool) {
	w.Mu.Lock()
	w.calls += w.owner.Calls // the lock is held for each notification anyway
	w.owner.Calls = 0
	if ok = w.next < w.n; ok {
		i = w.next
		w.next++
		if i == 0 {
			w.keeps = w.alone
			if w.server.balances {
				w.started = engine.Elapsed()
			}
		}
		if !w.keeps {
			w.kept = i // each connection was released at once
		}
		w.Begin(now)
	} else {
		w.Busy = false
		if w.server.balances && w.n > 0 {
			spent := engine.Elapsed() - w.started
			w.workload.add(spent, w.n)
			if w.most = min(2*w.most, conn.Batch); spent >= slowBatch {
				w.most = 1
			}
		}
	}
	w.Mu.Unlock()
	return i, ok
}

// releaseRest releases the connections that an idle worker still owns. One that was replaced owns
// at most the connection that it handled last.
func (w *worker) releaseRest() {
	w.owner.ReleaseKept(w.ready[w.kept:w.next])
	w.n, w.next, w.kept = 0, 0, 0
}

// run serves until the port is closed, the worker was replaced, or its shard needs it no longer.
func (w *worker) run() {
	cut := true
	defer func() { w.exit(cut) }()
	w.loop()
	cut = false
}

func (w *worker) loop() {
	s := w.server
	s.Label()
	w.owner.Init(&s.Shared, w.port)
	helped := s.shards[w.shard].helped
	var f engine.Failing
	for w.serve() {
		timeout := time.Duration(-1)
		until := helped.Load()
		w.alone = until == 0 && s.opts.Workers == s.opts.Shards
		if until != 0 {
			if timeout = engine.Tick; s.Wheel.Now() >= until && s.endHelp(w) {
				return
			}
		}
		most := conn.Batch
		if !w.keeps {
			most = w.most // what a slow handler delays is left to other workers
		}
		n, err := w.port.Process(nil, w.ready[:most], timeout)
		if err == socknotify.ErrClosed {
			return
		}
		if err == socknotify.ErrTimeout {
			continue
		}
		if err != nil {
			if f.Again(&s.Journal, engine.CannotWait, err) >= cmp.Or(s.giveUp, engine.GiveUpAfter) {
				s.fail(err) // ending connections posts to the port, and posts are dequeued
			}
			continue
		}
		f = engine.Failing{}
		w.n = n
	}
}

// serve handles the notifications that were dequeued, and reports whether the worker is to dequeue
// again.
func (w *worker) serve() bool {
	for !w.handleSome() {
	}
	w.releaseRest()
	return !w.Replaced
}

// handleSome handles notifications. It returns true when none is left, and false after a handler
// has panicked.
func (w *worker) handleSome() (done bool) {
	defer func() {
		if w.owner.InCall() {
			w.ready[w.next-1].Key = nil // the connection is not released with the others
			w.owner.Panicked(recover())
		}
	}()
	for {
		now := w.server.Wheel.Now()
		i, ok := w.claim(now)
		if !ok {
			return true
		}
		w.owner.Handle(&w.ready[i], uint32(now), w.keeps)
	}
}

// exit removes a worker whose goroutine ends. If a handler has ended it (runtime.Goexit), cut is
// true and the worker is replaced.
func (w *worker) exit(cut bool) {
	s := w.server
	s.mu.Lock()
	if cut {
		w.Mu.Lock()
		if !w.Replaced {
			s.addWorker(int(w.shard), w)
		}
		w.Mu.Unlock()
	}
	delete(s.workers, w)
	s.ended.add(w)
	s.mu.Unlock()
	s.Running.Done()
}
