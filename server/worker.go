package server

import (
	"cmp"
	"io"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A worker is one of the goroutines that serve.
type worker struct {
	server *server
	port   *socknotify.Port[*Key]
	shard  uint16 // index of the port
	buf    []byte
	reg    [1]socknotify.Registration[*Key]
	regs   [batch]socknotify.Registration[*Key] // regs[:nregs] are to be enabled together
	nregs  int

	// ready[:n] was dequeued. ready[next:n] is not begun, ready[next-1] may be in the call of a handler, and the
	// worker still owns the connections of ready[kept:next-1], which it releases together at the end.
	//
	// While the worker is busy these fields change with activity.mu held. So while a handler does not return, the
	// watchdog can move all of ready except ready[next-1] to another worker (see replace). While the worker is idle,
	// only the worker uses them.
	ready         [batch]socknotify.Notification[*Key]
	n, next, kept int
	most          int // notifications to dequeue at a time while the port is shared: few after a slow batch
	activity

	current *conn // whose handler runs
	keeps   bool  // the connections of this batch are released together at its end, because the port has no other worker
	tally
}

// batch is the number of notifications that a worker dequeues at a time.
const batch = 64

// claim returns the index of the next notification to handle. If there is none the worker is idle.
func (w *worker) claim(now uint64) (i int, ok bool) {
	w.mu.Lock()
	w.publish()
	if ok = w.next < w.n; ok {
		i = w.next
		w.next++
		if i == 0 {
			w.keeps = w.alone
			if w.server.balances {
				w.started = w.server.elapsed()
			}
		}
		if !w.keeps {
			w.kept = i // each connection was released at once
		}
		w.begin(now)
	} else {
		w.busy = false
		if w.server.balances && w.n > 0 {
			spent := w.server.elapsed() - w.started
			w.workload.add(spent, w.n)
			if w.most = min(2*w.most, batch); spent >= slowBatch {
				w.most = 1
			}
		}
	}
	w.mu.Unlock()
	return i, ok
}

// releaseRest releases the connections that an idle worker still owns. One that was replaced owns at most the connection
// that it handled last.
func (w *worker) releaseRest() {
	w.releaseKept(w.ready[w.kept:w.next])
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
	s.label()
	w.buf = make([]byte, s.BufferSize)
	helped := s.shards[w.shard].helped
	var f failing
	w.reg[0].Trigger = oneShot
	for i := range w.regs {
		w.regs[i].Op, w.regs[i].Trigger = socknotify.OpEnable, oneShot
	}
	for w.serve() {
		timeout := time.Duration(-1)
		if until := helped.Load(); until != 0 {
			if timeout = tick; s.wheel.Now() >= until && s.endHelp(w) {
				return
			}
		}
		most := batch
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
			if f.again(&s.journal, err, cmp.Or(s.giveUp, giveUpAfter)) {
				s.fail(err) // ending connections posts to the port, and posts are dequeued
			}
			continue
		}
		if f.pause != 0 {
			f = failing{}
		}
		w.n = n
	}
}

// serve handles the notifications that were dequeued, and reports whether the worker is to dequeue again.
func (w *worker) serve() bool {
	for !w.handleSome() {
	}
	w.releaseRest()
	return !w.replaced
}

// handleSome handles notifications. It returns true when none is left, and false after a handler has panicked.
func (w *worker) handleSome() (done bool) {
	defer func() {
		if c := w.current; c != nil {
			w.panicked(c, recover())
		}
	}()
	s := w.server
	for {
		now := s.wheel.Now()
		i, ok := w.claim(now)
		if !ok {
			return true
		}
		nt := &w.ready[i]
		c, read := (*conn)(nt.Key), true
		if nt.Events == socknotify.EventIn { // the usual case
			word := c.word.Or(wOwned)
			if word&wOwned != 0 {
				nt.Key = nil // the owner enables the registration again
				continue
			}
			c.touch(uint32(now))
			if word&(wNoRead|wHandshake|wInput) != 0 {
				read = w.events(c, socknotify.EventIn, word)
			}
		} else if c, read = w.handle(nt, uint32(now)); c == nil {
			continue
		}
		if read { // as in data
			w.current = c
			c.beginCall()
			w.returned(c, w.callData(c))
		}
		if w.keeps && c.word.Load()&wSpecial == 0 {
			// There is no other worker that could serve it now, and releasing many together costs less.
			continue
		}
		nt.Key = nil // an idle worker must not keep a connection alive
		w.release(c)
	}
}

// panicked closes the connection of a handler that has panicked or called runtime.Goexit.
func (w *worker) panicked(c *conn, value any) {
	s := w.server
	w.current = nil
	s.label()
	c.endCall()
	w.ready[w.next-1].Key = nil // the connection is not released with the others
	e := s.panicked("handler panicked", value, c.RemoteAddr())
	if c.word.Load()&wDead != 0 {
		w.free(c)
		return
	}
	c.fail(e)
	// Release it by a post. Ending it here could call the handler's Close, and a panic of that would not be recovered.
	c.word.And(^uint32(wOwned))
	c.wake()
}

// handle handles any notification that is not just EventIn. If the notification leaves the worker the owner of a
// connection, handle returns that, which stays the key, and reports whether Data is to be called before releasing it.
func (w *worker) handle(nt *socknotify.Notification[*Key], now uint32) (_ *conn, read bool) {
	c := (*conn)(nt.Key)
	nt.Key = nil // an idle worker must not keep a connection alive
	switch {
	case nt.Events&socknotify.EventRemove != 0:
		w.finish(c)
		return nil, false
	case nt.Kind() == socknotify.KindPosted:
		if nt.Data == admitted {
			w.startConn(c)
			return nil, false
		}
		c.word.And(^uint32(wPosted))
	case c == &c.listener.key:
		a := *nt
		*nt = socknotify.Notification[*Key]{}
		w.accepted(c.listener, &a)
		return nil, false
	}
	word := c.word.Or(wOwned)
	if word&wOwned != 0 {
		return nil, false // the owner enables the registration again
	}
	nt.Key = c.key()
	if nt.Kind() != socknotify.KindPosted { // a timer is no activity
		c.touch(now)
	}
	return c, w.events(c, nt.Events, word)
}

// events does everything except calling Data for the events of a connection that the worker owns, and reports whether
// Data is to be called.
func (w *worker) events(c *conn, e socknotify.Events, word uint32) (read bool) {
	s := w.server
	if e&socknotify.EventErr != 0 && c.failed(w.buf, e == socknotify.EventErr) {
		return false
	}
	if e&socknotify.EventOut != 0 {
		w.current = c // a reader of a Stream may panic
		goOn := c.flush()
		w.current = nil
		if goOn && s.handler.hasWritable() && c.word.Load()&wOver == 0 {
			w.current = c
			c.beginCall()
			w.returned(c, s.handler.writable(c))
		}
		word = c.word.Load()
	}
	if e&socknotify.EventIn == 0 || word&wNoRead != 0 {
		return false
	}
	if word&wHandshake != 0 {
		w.handshake(c)
		return false
	}
	return c.word.Load()&(wInput|wAgain) != wInput || c.moreInput()
}

// data calls Data. Unless it must be called, an input is asked first whether what it waits for has arrived.
func (w *worker) data(c *conn, must bool) {
	if c.word.Load()&wHandshake != 0 {
		w.handshake(c)
		return
	}
	if !must && c.word.Load()&wInput != 0 && !c.moreInput() {
		return
	}
	w.current = c
	c.beginCall()
	w.returned(c, w.callData(c))
}

// beginCall begins a handler's call: no goroutine has the input unless the connection is paused,
// and what the call writes is held.
func (c *conn) beginCall() {
	if c.word.Load()&(wInput|wPaused) == wInput {
		c.takeBack()
	}
	c.word.Or(wGather)
}

// endCall sends what was written during a handler's call, and ends its use of the input.
func (c *conn) endCall() {
	if word := c.word.And(^uint32(wGather)); word&(wHeld|wInput) != 0 {
		if word&wHeld != 0 {
			c.mu.Lock()
			c.sendHeld()
			c.mu.Unlock()
		}
		if word&wInput != 0 {
			c.endInput()
		}
	}
}

// returned ends a call of the handler that has returned.
func (w *worker) returned(c *conn, err error) {
	w.current = nil
	c.endCall()
	if err != nil {
		c.returned(err)
	}
}

// returned acts on an error that a handler has returned.
func (c *conn) returned(err error) {
	switch err {
	case nil, sock.ErrWouldBlock:
	case io.EOF:
		c.Close()
	default:
		c.fail(err)
	}
}

// exit removes a worker whose goroutine ends. If a handler has ended it (runtime.Goexit), cut is true and the worker is
// replaced.
func (w *worker) exit(cut bool) {
	s := w.server
	s.mu.Lock()
	if cut {
		w.mu.Lock()
		if !w.replaced {
			s.addWorker(int(w.shard), w)
		}
		w.mu.Unlock()
	}
	delete(s.workers, w)
	s.counts.keep(&w.tally)
	s.mu.Unlock()
	s.running.Done()
}
