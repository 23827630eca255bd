//go:build unix

package stress

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/socknotify/socknotify"
)

type (
	registration = socknotify.Registration[*context]
	notification = socknotify.Notification[*context]
)

// A worker dequeues, handles, and gives what it did to the port with its next call.
type worker struct {
	s     *stressTest
	rng   *rand.Rand
	regs  []registration
	after []func() // beside regs: what to do when the entry is through
	buf   []byte
	exit  bool
}

const exitPost = ^uintptr(0)

func (w *worker) run() {
	entries := make([]notification, 3)
	for !w.exit && !w.s.failed() {
		timeout := time.Duration(-1)
		switch w.rng.IntN(16) {
		case 0:
			timeout = 0
		case 1:
			timeout = time.Duration(w.rng.IntN(2000)) * time.Microsecond
		}
		if w.closing() {
			timeout = 0
		}
		w.process(entries, timeout)
	}
	for len(w.regs) > 0 && !w.s.failed() {
		w.process(nil, 0)
	}
}

// closing reports whether something is to be done once the entries are through, which must not wait for the
// next notification: there may be none.
func (w *worker) closing() bool {
	for _, f := range w.after {
		if f != nil {
			return true
		}
	}
	return false
}

func (w *worker) process(entries []notification, timeout time.Duration) {
	s := w.s
	n, err := s.port.Process(w.regs, entries, timeout)
	if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
		if !s.failed() {
			s.fail("Process: %v", err)
		}
		return
	}
	regs, after := w.regs, w.after
	w.regs, w.after = nil, nil
	for i := range regs {
		if regs[i].Result != nil {
			s.fail("entry %+v: %v", regs[i], regs[i].Result)
			return
		}
		if after[i] != nil {
			after[i]()
		}
	}
	for i := range entries[:n] {
		w.handle(entries[i])
	}
}

func (w *worker) add(r registration, after func()) {
	w.regs, w.after = append(w.regs, r), append(w.after, after)
}

func (w *worker) handle(n notification) {
	s := w.s
	c := n.Key
	switch {
	case n.Kind() == socknotify.KindPosted:
		if n.Data != exitPost {
			s.postsGot.Add(1)
		} else if w.exit {
			s.post(exitPost) // it was meant for another
		}
		w.exit = w.exit || n.Data == exitPost
	case n.Events == socknotify.EventRemove:
		if !c.state.CompareAndSwap(removing, freed) {
			s.fail("EventRemove for a context that is %v; %v", c, c.end)
			return
		}
		s.removed.Add(1)
		if c.closes {
			w.finish(c.end, false)
		}
	case !c.state.CompareAndSwap(armed, held):
		s.fail("%v for a context that is %v; %v", n.Events, c, c.end)
	case n.Events&(socknotify.EventsAll|socknotify.EventErr) == 0 || n.Events&^(socknotify.EventsAll|socknotify.EventErr) != 0:
		s.fail("events %v; %v", n.Events, c.end)
	default:
		s.notified.Add(1)
		w.serve(c.end)
	}
}

// serve is the handler of an end whose notification the worker holds.
func (w *worker) serve(e *end) {
	s := w.s
	e.turns++
	got := s.receive(e, w.buf, w.rng)
	switch got {
	case wrong:
		return
	case ended:
		e.shutdown()
		w.retire(e, false)
		return
	}
	if !s.stopping.Load() {
		switch draw := w.rng.IntN(4000); {
		case draw < 10:
			e.abort(draw < 5)
			w.retire(e, draw >= 7)
			return
		case draw < 20:
			e.shutdown()
		case draw < 40:
			w.exchange(e)
			return
		}
	}
	s.reply(e, w.buf, w.rng)
	// The filter has EventOut exactly if the last send would have blocked, so both directions of
	// the filter are drained if the receiving one is.
	honest := got == drained
	w.add(e.enable(honest && (e.pair.edge || w.rng.IntN(2) == 0)), nil)
}

// retire ends an end: removed first and closed on EventRemove, or as soon as OpRemove has its Result,
// or just closed.
func (w *worker) retire(e *end, keep bool) {
	c := e.ctx.Load()
	switch w.rng.IntN(3) {
	case 0:
		c.closes = true
		w.remove(e, c, nil)
	case 1:
		w.remove(e, c, func() { w.finish(e, keep) })
	default:
		c.state.Store(freed) // one-shot, and held: nothing more may come
		w.finish(e, keep)
	}
}

func (w *worker) remove(e *end, c *context, after func()) {
	c.state.Store(removing)
	w.s.removals.Add(1)
	r := socknotify.Registration[*context]{Handle: uintptr(e.fd), Op: socknotify.OpRemove}
	if e.pair.bySock {
		r = socknotify.Remove[*context](e.sock)
	}
	w.add(r, after)
}

// exchange removes an end's registration and makes another for it, with a new context, without waiting
// for EventRemove.
func (w *worker) exchange(e *end) {
	w.remove(e, e.ctx.Load(), nil)
	e.ctx.Store(&context{end: e})
	w.add(e.enable(false), nil)
}

// finish closes an end, and replaces the pair whose last end it was.
func (w *worker) finish(e *end, keep bool) {
	s := w.s
	s.close(e, keep)
	if e.pair.dead.Add(1) < 2 {
		return
	}
	s.delist(e.pair)
	if s.stopping.Load() || s.failed() {
		return
	}
	p, err := s.newPair(w.rng)
	if err != nil {
		s.fail("%v", err)
		return
	}
	for _, e := range p.ends {
		s.reply(e, w.buf, w.rng)
	}
	for _, e := range p.ends {
		w.add(e.enable(false), nil)
	}
}
