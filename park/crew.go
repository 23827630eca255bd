package park

import (
	"runtime"
	"sync"
	"time"

	"github.com/socknotify/socknotify"
)

// The crew are the goroutines that run functions. Each waits on the port itself, takes one notification,
// and runs what it is for. As long as the bound allows there is one that waits, so a function that blocks
// holds up nobody; what the bound does not allow stays in the port.
type crew struct {
	mu      sync.Mutex
	waiting int
	running int
	workers []*worker
	// lingering is the number of the running that run no function, but wait for a stream's next bytes.
	lingering int
	gone      sync.WaitGroup
}

// patience is how long a worker waits for work beside others before it ends.
const patience = 5 * time.Second

// hire starts a worker if none waits.
func (l *Lot) hire() {
	c := &l.crew
	if c.waiting > 0 || l.config.MaxRunning > 0 && c.running >= l.config.MaxRunning {
		return
	}
	c.waiting++
	w := &worker{lot: l, index: len(c.workers)}
	c.workers = append(c.workers, w)
	c.gone.Go(func() { l.work(w) })
}

// dismiss takes a worker that ends out of the list.
func (c *crew) dismiss(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := len(c.workers) - 1
	last := c.workers[end]
	last.index = w.index
	c.workers[w.index], c.workers[end] = last, nil
	c.workers = c.workers[:end]
}

func (l *Lot) work(w *worker) {
	defer l.crew.dismiss(w)
	var one [1]socknotify.Notification[*spot]
	for {
		n, err := l.port.Process(nil, one[:], patience)
		switch {
		case n == 1:
			if !l.serve(w, one[0]) {
				return
			}
			one[0] = socknotify.Notification[*spot]{}
		case err == socknotify.ErrTimeout:
			if l.redundant() {
				return
			}
		default:
			return // closed
		}
	}
}

// serve runs the function that a notification is for. It reports whether the worker is to go on.
func (l *Lot) serve(w *worker, nt socknotify.Notification[*spot]) bool {
	if nt.Events == socknotify.EventRemove {
		return true
	}
	c := &l.crew
	c.mu.Lock()
	c.waiting--
	c.running++
	l.hire()
	c.mu.Unlock()

	returned := false
	defer func() {
		if !returned { // it panics, or is runtime.Goexit
			l.abandon(w, nt.Key)
			c.mu.Lock()
			c.running--
			l.hire()
			c.mu.Unlock()
		}
	}()
	from := parked
	if nt.Kind() == socknotify.KindPosted {
		from = queued
	}
	l.run(w, nt.Key, from)
	returned = true

	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if c.waiting >= runtime.GOMAXPROCS(0) {
		return false
	}
	c.waiting++
	return true
}

// redundant reports whether a worker that has waited long may end.
func (l *Lot) redundant() bool {
	c := &l.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 1 {
		return false
	}
	c.waiting--
	return true
}
