package park

import (
	"runtime"
	"sync"
	"time"

	"github.com/socknotify/socknotify"
)

// workers is the pool of goroutines that run functions. Each worker waits on the port, dequeues one notification, and
// runs the function of its connection. Before it runs a function it starts another worker if none waits, as far as
// MaxRunning allows. So a function that blocks delays no other connection. At the limit, notifications stay queued in
// the port.
type workers struct {
	mu      sync.Mutex
	waiting int
	running int
	list    []*worker
	// lingering counts the running workers that wait for the next bytes of a stream (see stream.go).
	lingering int
	exited    sync.WaitGroup
}

// workerIdleTime is the time after which a worker without work exits, if others wait too.
const workerIdleTime = 5 * time.Second

// startWorker starts a worker if none waits and the limit allows another. The caller holds workers.mu, or has not yet
// shared l.
func (l *Lot) startWorker() {
	c := &l.workers
	if c.waiting > 0 || l.config.MaxRunning > 0 && c.running >= l.config.MaxRunning {
		return
	}
	c.waiting++
	w := &worker{lot: l, index: len(c.list)}
	c.list = append(c.list, w)
	c.exited.Go(func() { l.work(w) })
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

func (l *Lot) work(w *worker) {
	defer l.workers.remove(w)
	var one [1]socknotify.Notification[*parkedConn]
	for {
		n, err := l.port.Process(nil, one[:], workerIdleTime)
		switch {
		case n == 1:
			if !l.serve(w, one[0]) {
				return
			}
			one[0] = socknotify.Notification[*parkedConn]{}
		case err == socknotify.ErrTimeout:
			if l.retireWorker() {
				return
			}
		default:
			return // the port is closed
		}
	}
}

// serve runs the function of the connection that nt is for. It reports whether w should continue.
func (l *Lot) serve(w *worker, nt socknotify.Notification[*parkedConn]) bool {
	if nt.Events == socknotify.EventRemove {
		return true
	}
	c := &l.workers
	c.mu.Lock()
	c.waiting--
	c.running++
	l.startWorker()
	c.mu.Unlock()

	returned := false
	defer func() {
		if !returned { // the function panicked or called runtime.Goexit
			l.abandon(w, nt.Key)
			c.mu.Lock()
			c.running--
			l.startWorker()
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
