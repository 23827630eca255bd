package server

import (
	"cmp"
	"io"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

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

	ready [batch]socknotify.Notification[*Key]
	at    uint64 // what cursor is, or was before the rest was taken away
	// cursor is how far the worker is in ready, and since when: a tick, how many there are, which is next,
	// and from which on those before that are kept, to be let go of together. Who swaps it owns the next
	// one; a worker that does not return has all of the rest taken away, and what it kept.
	cursor  atomic.Uint64
	current *conn // whose handler runs
	logged  bool  // that the worker is stuck; the watcher's
	alone   bool  // there is no other on the port, but for one that does not return
}

// batch is how many notifications a worker dequeues at a time.
const batch = 64

const (
	idle     = 1 << 30 // nothing to do
	replaced = 1 << 31 // another has taken the rest
)

func cursor(now uint64, n, next, kept int) uint64 {
	return now<<32 | uint64(n)<<16 | uint64(kept)<<8 | uint64(next)
}

func position(cur uint64) (n, next, kept int) {
	return int(cur >> 16 & 0xff), int(cur & 0xff), int(cur >> 8 & 0xff)
}

func since(cur uint64) (tick uint32)  { return uint32(cur >> 32) }
func (s *server) addWorker(w *worker) { s.workers[w] = struct{}{}; s.running.Add(1); go w.run() }
func (w *worker) advance(next uint64) bool {
	was := w.at
	w.at = next
	return w.cursor.CompareAndSwap(was, next)
}

// run serves until the port is closed, or another worker has taken over.
func (w *worker) run() {
	cut := true
	defer func() { w.leave(cut) }()
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
		if !w.advance(idle) {
			return
		}
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
		w.at = cursor(s.wheel.Now(), n, 0, 0)
		w.cursor.Store(w.at)
	}
}

// serve handles what was dequeued. It is false where another worker has taken the rest.
func (w *worker) serve() (mine bool) {
	for {
		done, mine := w.some()
		if done {
			return mine
		}
	}
}

// some handles notifications until none is left or a handler panics.
func (w *worker) some() (done, mine bool) {
	defer func() {
		if c := w.current; c != nil {
			w.panicked(c, recover())
		}
	}()
	s := w.server
	for {
		n, i, kept := position(w.at)
		if w.at&(idle|replaced) != 0 {
			return true, true
		}
		if !w.alone {
			kept = i
		}
		now := s.wheel.Now()
		switch {
		case i == n && kept < n:
			if !w.advance(cursor(now, n, i, i)) {
				w.letGoAll(w.ready[i-1 : i])
				return true, false
			}
			w.letGoAll(w.ready[kept:i])
			continue
		case i == n:
			return true, true
		case !w.advance(cursor(now, n, i+1, kept)):
			w.letGoAll(w.ready[max(i-1, kept):i])
			return true, false
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
			// It is this worker's until the cursor moves on, and whose that is then.
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
	_, i, _ := position(w.at)
	w.ready[i-1].Key = nil // not to be let go of with those that were kept
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
		if nt.Data == fresh {
			w.welcome(c)
			return nil, false
		}
		c.word.And(^uint32(wWoken))
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
	if f.again(cmp.Or(s.patient, patient)) {
		s.lose(err)
	}
}

// leave is a worker's end. One whose goroutine was cut off by its handler (runtime.Goexit) is replaced.
func (w *worker) leave(cut bool) {
	s := w.server
	s.mu.Lock()
	if cut {
		s.replace(w, w.cursor.Load())
	}
	delete(s.workers, w)
	s.mu.Unlock()
	s.running.Done()
}
