package parking

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// workers is the pool of goroutines that run functions. Each worker waits on the port, dequeues one notification, and
// runs the function of its connection. Before it runs a function it starts another worker if none waits. So a function
// that blocks delays no other connection. While max functions run, the one worker that waits puts what it dequeues into
// the backlog, from which a worker takes its next connection when its function has returned.
//
// In a lot whose functions hardly ever wait, as those of tunnels, a worker dequeues several notifications at once, which
// saves system calls. All but the first go to the backlog, and Relieve is called before a function may wait.
//
// In a lot whose functions return at once, as those of an HTTPServer, one worker does everything, and no other is started
// or woken for a notification, until a function calls Relieve.
type workers struct {
	max     int          // the limit of running; 0 is none
	batch   atomic.Int32 // notifications that a worker dequeues at once
	alone   bool         // functions return at once
	mu      sync.Mutex
	waiting int
	running int
	backlog []ready // with a batch of 1, empty as long as running is below max
	room    []ready // for a small backlog; nil with a batch of 1
	list    []*worker
	// lingering counts the running workers that wait for the next bytes of a steady connection (see steady.go).
	lingering int
	exited    sync.WaitGroup
}

// A ready is a connection whose function is to run.
type ready struct {
	pc     *parkedConn
	from   state             // of pc
	events socknotify.Events // if from is parked
}

// workerIdleTime is the time after which a worker without work exits, if others wait too. Tests set it.
var workerIdleTime = 5 * time.Second

// SetBatch sets how many notifications a worker dequeues at once. It is called before the first connection is parked. With
// more than one, a function must call Relieve before it may wait.
func (l *Lot) SetBatch(n int) {
	c := &l.workers
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch.Store(int32(n))
	c.room = make([]ready, 0, 4*n)
}

// SetAlone is SetBatch for functions that return at once.
func (l *Lot) SetAlone(n int) {
	l.SetBatch(n)
	l.workers.mu.Lock()
	defer l.workers.mu.Unlock()
	l.workers.alone = true
}

// startWorker starts a worker if none waits. The caller holds workers.mu, or has not yet shared l.
func (l *Lot) startWorker() {
	if l.workers.waiting == 0 {
		l.workers.waiting++
		l.startWith(ready{})
	}
}

// startWith starts a worker that begins with r, or waits if r is zero. The caller has counted it and holds workers.mu.
func (l *Lot) startWith(r ready) {
	c := &l.workers
	w := &worker{lot: l, index: len(c.list)}
	c.list = append(c.list, w)
	c.exited.Go(func() { l.work(w, r) })
}

// remove removes w from the list.
func (c *workers) remove(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := len(c.list) - 1
	last := c.list[end]
	last.index = w.index
	c.list[w.index], c.list[end] = last, nil
	c.list = c.list[:end]
}

// full reports whether max functions run. The caller holds c.mu.
func (c *workers) full() bool { return c.max > 0 && c.running >= c.max }

// push adds connections to the backlog. The caller holds c.mu.
func (c *workers) push(all ...ready) {
	was := c.backlog
	c.backlog = append(was, all...)
	if len(was) > 0 && &was[0] != &c.backlog[0] {
		clear(was) // the room would keep the records
	}
}

// pop takes the first connection from the backlog, or returns zero. The caller holds c.mu.
func (c *workers) pop() (r ready) {
	if len(c.backlog) == 0 {
		return r
	}
	r, c.backlog[0] = c.backlog[0], r
	c.backlog = c.backlog[1:]
	if len(c.backlog) == 0 {
		c.backlog = c.room[:0]
	}
	return r
}

func (l *Lot) work(w *worker, r ready) {
	defer l.workers.remove(w)
	l.label()
	for more := true; more; {
		if r.pc == nil {
			if r = l.dequeue(w); r.pc == nil {
				return
			}
		}
		r, more = l.serve(w, r)
	}
}

// dequeue waits for a connection whose function may run, and counts the worker as running. It returns zero if the worker
// must exit.
func (l *Lot) dequeue(w *worker) ready {
	for {
		if n := int(l.workers.batch.Load()); len(w.batch) != n {
			w.batch = make([]socknotify.Notification[*parkedConn], n)
		}
		n, err := l.port.Process(nil, w.batch, workerIdleTime)
		w.ready = w.ready[:0]
		for i := range w.batch[:n] {
			r := readyOf(&w.batch[i])
			if r.pc != nil && (len(w.ready) == 0 || r.pc.enqueue(&r)) {
				w.ready = append(w.ready, r)
			}
		}
		switch {
		case len(w.ready) > 0:
			r := w.ready[0]
			admitted := l.admit(&r, w.ready[1:])
			clear(w.ready) // they would keep the records
			if admitted {
				return r
			}
		case n > 0:
		case err == socknotify.ErrTimeout:
			if l.retireWorker() {
				return ready{}
			}
		default:
			return ready{} // the port is closed
		}
	}
}

// readyOf returns the connection of a notification, or zero for EventRemove. It clears the
// notification, which would keep the record.
func readyOf(n *socknotify.Notification[*parkedConn]) (r ready) {
	if n.Events != socknotify.EventRemove {
		r = ready{n.Key, parked, n.Events}
		if n.Kind() == socknotify.KindPosted {
			r.from = queued
		}
	}
	*n = socknotify.Notification[*parkedConn]{}
	return r
}

// admit counts a waiting worker as running, and adds rest, which was enqueued, to the backlog. While max functions run it
// adds r to the backlog instead, and returns false.
func (l *Lot) admit(r *ready, rest []ready) bool {
	c := &l.workers
	c.mu.Lock()
	defer c.mu.Unlock()
	c.push(rest...)
	if c.full() {
		c.mu.Unlock() // pc.mu is locked before c.mu
		ok := r.pc.enqueue(r)
		c.mu.Lock()
		if !ok {
			return false
		}
		if c.full() {
			c.push(*r)
			return false
		}
	}
	c.waiting--
	c.running++
	if !c.alone {
		l.startWorker()
	}
	return true
}

// Relieve has another worker serve the backlog, for a function that may wait.
func (l *Lot) Relieve() {
	c := &l.workers
	if c.batch.Load() == 1 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := c.pop(); next.pc != nil {
		c.running++
		l.startWith(next)
	} else if c.alone {
		l.startWorker()
	}
}

// enqueue makes a parked connection a queued one, which has no idle timeout. It reports whether the call of r is still
// pending.
func (pc *parkedConn) enqueue(r *ready) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state != r.from {
		return false
	}
	pc.state, r.from = queued, queued
	return true
}

// serve runs the function of r. It returns what w serves next, if that is in the backlog, and whether w should continue.
func (l *Lot) serve(w *worker, r ready) (next ready, more bool) {
	c := &l.workers
	returned := false
	defer func() {
		if !returned { // the function panicked or called runtime.Goexit
			l.abandon(w, r.pc)
			c.mu.Lock()
			defer c.mu.Unlock()
			if next := c.pop(); next.pc != nil {
				l.startWith(next)
				return
			}
			c.running--
			l.startWorker()
		}
	}()
	l.run(w, r)
	returned = true

	c.mu.Lock()
	defer c.mu.Unlock()
	if next = c.pop(); next.pc != nil {
		return next, true
	}
	c.running--
	enough := max(2, runtime.GOMAXPROCS(0)) // with one, each call would start the next worker
	if c.alone {
		enough = 1
	}
	if c.waiting >= enough {
		return ready{}, false
	}
	c.waiting++
	return ready{}, true
}

// retireWorker reports whether a worker that has waited for workerIdleTime may exit. One worker always stays. If it
// may, retireWorker removes it from the count of waiting workers.
func (l *Lot) retireWorker() bool {
	c := &l.workers
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 1 {
		return false
	}
	c.waiting--
	return true
}
