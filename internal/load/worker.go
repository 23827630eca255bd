package load

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// atOnce is how many notifications are dequeued at a time, and how many due connections are served
// before the next dequeue.
const atOnce = 64

// A worker is one goroutine with its own connections.
type worker struct {
	*job
	port  *socknotify.Port[*conn]
	conns []conn
	size  int64
	depth int64

	buf   []byte // for every receive
	ready []socknotify.Notification[*conn]
	regs  []socknotify.Registration[*conn]
	rearm []*conn // for the next regs
	due   dues

	connecting int  // connects and handshakes under way
	live       int  // connections that were made and have not failed
	draining   bool // no new requests
	waiting    int  // connections that are busy; counted when draining

	connectUntil int64
	shaking      sync.WaitGroup
	shaken       chan *conn // whose handshakes are over

	latency  *histogram // of every answered request
	end      int64      // of sending, or the last answer
	errors   atomic.Int64
	first    error         // of a connection
	broken   error         // the port itself
	answered *atomic.Int64 // requests, as they are counted for others
}

// newWorker makes worker number i, which has every connection whose number is i modulo Workers.
func newWorker(j *job, port *socknotify.Port[*conn], i int) *worker {
	w := &worker{
		job: j, port: port, size: int64(j.Size), depth: int64(j.Depth),
		conns: make([]conn, (j.Connections-i+j.Workers-1)/j.Workers),
		buf:   make([]byte, chunk),
		ready: make([]socknotify.Notification[*conn], atOnce),
		regs:  make([]socknotify.Registration[*conn], 0, 2*atOnce),

		shaken:  make(chan *conn, connectsAtOnce),
		latency: newHistogram(),
	}
	if w.answered = new(atomic.Int64); j.Answered != nil {
		w.answered = j.Answered(i)
	}
	// A connection is in each of these once at most.
	w.rearm, w.due = make([]*conn, 0, len(w.conns)), make(dues, 0, len(w.conns))
	slots := make([]int64, len(w.conns)*j.Depth)
	for k := range w.conns {
		c := &w.conns[k]
		c.index = int64(k*j.Workers + i)
		c.phase = c.index * stride % period
		c.slots, slots = slots[:j.Depth:j.Depth], slots[j.Depth:]
	}
	return w
}

// run sends requests until the time is up or the run is stopped, and then waits for answers.
func (w *worker) run() {
	for i := range w.conns {
		if c := &w.conns[i]; c.sock != nil {
			w.arm(c)
			if w.Active == 0 || c.index < int64(w.Active) {
				w.later(c, w.begin)
			}
		}
	}
	until := w.until
	for w.broken == nil {
		now := w.now()
		if !w.draining && (now >= until && !w.beginning() || w.stopped.Load()) {
			w.drain()
			w.end, until = max(w.end, now), now+int64(w.Drain)
		}
		if w.live+w.connecting == 0 || w.draining && (w.waiting == 0 || now >= until) {
			break
		}
		w.startDue(now)
		w.answered.Store(w.latency.total)
		for _, nt := range w.process(w.next(until)) {
			w.handle(nt.Key, nt.Events)
		}
	}
	if w.broken == nil && !w.stopped.Load() {
		w.giveUp()
	}
	w.answered.Store(w.latency.total)
}

// process enables the listed connections and dequeues notifications, waiting until a time. It
// returns those of live connections, without removals and the posts that wake the worker.
func (w *worker) process(until int64) []socknotify.Notification[*conn] {
	w.regs = w.regs[:0]
	for _, c := range w.rearm {
		c.listed = false
		if c.sock != nil {
			w.regs = append(w.regs, w.registration(c))
		}
	}
	w.rearm = w.rearm[:0]
	n, err := w.port.Process(w.regs, w.ready, time.Duration(max(0, until-w.now())))
	if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
		w.broken = err
		return nil
	}
	for i := range w.regs {
		if r := &w.regs[i]; r.Result != nil {
			w.fail(r.Key, r.Result)
		}
	}
	return slices.DeleteFunc(w.ready[:n], func(nt socknotify.Notification[*conn]) bool {
		return nt.Key == nil || nt.Key.sock == nil || nt.Events == socknotify.EventRemove
	})
}

// arm lists a connection for the next process.
func (w *worker) arm(c *conn) {
	if !c.listed {
		c.listed = true
		w.rearm = append(w.rearm, c)
	}
}

// later lists a connection for startDue.
func (w *worker) later(c *conn, due int64) {
	if !c.waits {
		c.waits, c.due = true, due
		heap.Push(&w.due, c)
	}
}

// startDue serves connections whose next request is due.
func (w *worker) startDue(now int64) {
	for range atOnce {
		if len(w.due) == 0 || w.due[0].due > now {
			return
		}
		c := heap.Pop(&w.due).(*conn)
		c.waits = false
		if c.sock != nil {
			now = w.now()
			w.pump(c, now)
		}
	}
}

// beginning reports whether there are connections that have not sent what was due at the beginning.
// The duration may be over when the worker first runs.
func (w *worker) beginning() bool { return len(w.due) > 0 && w.due[0].due <= w.begin }

// next returns until when the worker may wait for notifications.
func (w *worker) next(until int64) int64 {
	if len(w.due) > 0 {
		return min(until, w.due[0].due)
	}
	return until
}

// drain gives up the requests of which no byte was sent.
func (w *worker) drain() {
	w.draining, w.due = true, nil
	for i := range w.conns {
		if c := &w.conns[i]; c.sock != nil {
			c.issued, c.before = c.begun, c.got
			if c.busy() {
				w.waiting++
			}
		}
	}
}

// giveUp counts the connections on which nothing arrived since drain as errors. A slow connection
// has not failed.
func (w *worker) giveUp() {
	for i := range w.conns {
		if c := &w.conns[i]; c.sock != nil && c.busy() && c.got == c.before {
			w.fail(c, fmt.Errorf("no answer %v after the last request", w.Drain))
		}
	}
}

// fail counts a connection as an error and closes it. process skips notifications that are still
// queued for it.
func (w *worker) fail(c *conn, err error) {
	w.errors.Add(1)
	if w.first == nil {
		w.first = fmt.Errorf("connection %d: %w", c.index, err)
	}
	if w.Strict {
		w.broken = cmp.Or(w.broken, w.first)
		w.stop()
	}
	switch {
	case c.connected:
		w.live--
	case c.sock != nil:
		w.connecting--
	}
	if w.draining && c.busy() {
		w.waiting--
	}
	w.drop(c)
}

// drop closes a connection's socket.
func (w *worker) drop(c *conn) {
	if c.sock == nil {
		return
	}
	remove := []socknotify.Registration[*conn]{socknotify.Remove[*conn](c.sock)}
	w.port.Process(remove, nil, 0) // it may have no registration
	c.sock.Close()
	c.sock, c.tls = nil, nil
}

// dues is a heap of connections by due time, the earliest first.
type dues []*conn

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].due < d[j].due }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dues) Push(c any)        { *d = append(*d, c.(*conn)) }
func (d *dues) Pop() any {
	last := len(*d) - 1
	c := (*d)[last]
	*d = (*d)[:last]
	return c
}
