package server

import (
	"cmp"
	"io"
	"log/slog"
	"runtime/debug"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A worker is one of the goroutines that serve.
type worker struct {
	server *server
	port   *socknotify.Port[*Key]
	buf    []byte
	reg    [1]socknotify.Registration[*Key]
	regs   [batch]socknotify.Registration[*Key] // of those that it lets go of together
	nregs  int

	// What was dequeued: ready[next:n] is not begun, and ready[next-1] may be in the call of a handler. Of those
	// before, the connections in ready[kept:] are still owned, and are let go of together at the end.
	//
	// All of this changes with the lock of the activity held. So while a handler does not return, the watchdog can
	// take everything but ready[next-1] away from its worker (see replace).
	ready         [batch]socknotify.Notification[*Key]
	n, next, kept int
	activity

	current *conn // whose handler runs
	alone   bool  // there is no other on the port, but for one that does not return
}

// batch is how many notifications a worker dequeues at a time.
const batch = 64

func (s *server) addWorker(w *worker) { s.workers[w] = struct{}{}; s.running.Add(1); go w.run() }

// begin begins to handle n notifications that were dequeued.
func (w *worker) begin(n int) {
	w.mu.Lock()
	w.n, w.next, w.kept = n, 0, 0
	w.activity.begin(w.server.wheel.Now())
	w.mu.Unlock()
}

// claim returns the index of the next notification to handle, if there is one.
func (w *worker) claim(now uint64) (i int, ok bool) {
	w.mu.Lock()
	if ok = w.next < w.n; ok {
		i = w.next
		w.next++
		if !w.alone {
			w.kept = i // those before have been let go of
		}
		w.activity.begin(now)
	}
	w.mu.Unlock()
	return i, ok
}

// end lets go of the connections that were kept, and reports whether the worker goes on. A worker that was replaced
// has kept at most the one that it handled last, and leaves.
func (w *worker) end() (goesOn bool) {
	w.mu.Lock()
	kept := w.kept
	w.kept = w.next
	goesOn = !w.activity.end()
	w.mu.Unlock()
	w.releaseKept(w.ready[kept:w.next])
	return goesOn
}

// run serves until the port is closed, or another worker has taken over.
func (w *worker) run() {
	cut := true
	defer func() { w.exit(cut) }()
	w.loop()
	cut = false
}

func (w *worker) loop() {
	s := w.server
	w.buf = make([]byte, s.bufferSize())
	var f failing
	w.reg[0].Trigger = oneShot
	for i := range w.regs {
		w.regs[i].Op, w.regs[i].Trigger = socknotify.OpEnable, oneShot
	}
	for w.serve() {
		n, err := w.port.Process(nil, w.ready[:], -1)
		if err == socknotify.ErrClosed {
			return
		}
		if err != nil {
			s.waitFailed(&f, err)
			continue
		}
		if f.pause != 0 {
			f = failing{}
		}
		w.begin(n)
	}
}

// serve handles what was dequeued, and reports whether the worker goes on.
func (w *worker) serve() bool {
	for !w.handleSome() {
	}
	return w.end()
}

// some handles notifications until none is left, which it reports, or a handler panics.
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
		if nt.Events == socknotify.EventIn { // a connection's, and nearly always just that
			word := c.word.Or(wOwned)
			if word&wOwned != 0 {
				nt.Key = nil // the owner will see to it
				continue
			}
			c.touch(uint32(now))
			if word&(wNoRead|wHandshake) != 0 {
				read = w.events(c, socknotify.EventIn, word)
			}
		} else if c, read = w.handle(nt, uint32(now)); c == nil {
			continue
		}
		if read { // as in data
			w.current = c
			err := s.handler.data(c, w.buf)
			w.current = nil
			if err != nil {
				c.returned(err)
			}
		}
		if w.alone && c.word.Load()&wSpecial == 0 {
			// Nobody else could serve it yet anyway, and letting go of many at once costs a good part less.
			continue
		}
		nt.Key = nil // an idle worker holds on to nobody
		w.release(c)
	}
}

// panicked closes the connection of a handler that did not return.
func (w *worker) panicked(c *conn, value any) {
	s := w.server
	w.current = nil
	w.ready[w.next-1].Key = nil // not to be let go of with those that were kept
	s.counts.panics.Add(1)
	e := &PanicError{value, debug.Stack()}
	s.log(slog.LevelError, "handler panicked", "value", value, "stack", string(e.Stack))
	if c.word.Load()&wDead != 0 {
		w.free(c)
		return
	}
	c.fail(e)
	// Its end may call Close, which may panic as well, and nobody would recover from that here.
	c.word.And(^uint32(wOwned))
	c.wake()
}

// handle is for a notification of more than EventIn, or of something else. It returns the connection, which stays its
// key, if that is to be let go of, and whether Data is to be called before.
func (w *worker) handle(nt *socknotify.Notification[*Key], now uint32) (_ *conn, read bool) {
	c := (*conn)(nt.Key)
	nt.Key = nil // an idle worker holds on to nobody
	switch {
	case nt.Events&socknotify.EventRemove != 0:
		w.finish(c)
		return nil, false
	case nt.Posted():
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
		return nil, false // the owner will see to it
	}
	nt.Key = c.key()
	c.touch(now)
	return c, w.events(c, nt.Events, word)
}

// events sees to all but Data for a connection that is owned, and reports whether that is to be called.
func (w *worker) events(c *conn, e socknotify.Events, word uint32) (read bool) {
	s := w.server
	if e&socknotify.EventErr != 0 && c.failed(w.buf, e == socknotify.EventErr) {
		return false
	}
	if e&socknotify.EventOut != 0 {
		if c.flush() && s.handler.hasWritable() && c.word.Load()&wOver == 0 {
			w.current = c
			err := s.handler.writable(c)
			w.current = nil
			c.returned(err)
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
	return true
}

func (w *worker) data(c *conn) {
	if c.wrapped && c.word.Load()&wHandshake != 0 {
		w.handshake(c)
		return
	}
	w.current = c
	err := w.server.handler.data(c, w.buf)
	w.current = nil
	if err != nil {
		c.returned(err)
	}
}

// returned is what a handler's error means.
func (c *conn) returned(err error) {
	switch err {
	case nil, sock.ErrWouldBlock:
	case io.EOF:
		c.Close()
	default:
		c.fail(err)
	}
}

// waitFailed is for a wait that failed although the port is open. It pauses, so that the worker may try again, and
// ends the server where that has been so for long. The worker goes on even then: what ends a connection is queued,
// and dequeued without waiting.
func (s *server) waitFailed(f *failing, err error) {
	if s.failures.now() {
		s.log(slog.LevelWarn, "cannot wait for notifications, trying again", "error", err)
	}
	if f.again(cmp.Or(s.giveUp, giveUpAfter)) {
		s.fail(err)
	}
}

// leave is a worker's end. One whose goroutine was cut off by its handler (runtime.Goexit) is replaced.
func (w *worker) exit(cut bool) {
	s := w.server
	s.mu.Lock()
	if cut {
		w.mu.Lock()
		if !w.replaced {
			s.replace(w)
		}
		w.mu.Unlock()
	}
	delete(s.workers, w)
	s.mu.Unlock()
	s.running.Done()
}
