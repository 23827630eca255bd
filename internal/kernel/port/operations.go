package port

import (
	"errors"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// This file is what package operation uses of a port. A socket with overlapped operations has a
// registration of its own kind (wOverlapped), of which the program does not know.

// A Flight is the part of an overlapped operation that the port knows, its first field: the port
// that the operation is in flight on.
type Flight struct{ core atomic.Pointer[Core] } // nil if it is not in flight

// Begin marks an operation as in flight on a port. False means that it is in flight already. An
// operation that was in flight on a port that is closed never completes (O10), and can begin again.
func (f *Flight) Begin(c *Core) bool {
	was := f.core.Load()
	return (was == nil || was.over()) && f.core.CompareAndSwap(was, c)
}

// On reports whether the operation is in flight on a port.
func (f *Flight) On(c *Core) bool { return f.core.Load() == c }

// End gives the operation back to the caller.
func (f *Flight) End() { f.core.Store(nil) }

// over reports that no operation on the port completes any more, and that none of their buffers is
// in use.
func (c *Core) over() bool { return c.down.Load() && c.Jobs.Load() == 0 }

var (
	errOperating  = errors.New("operations of the socket are in flight")
	errRegistered = errors.New("the socket has a registration; remove it first")
)

// OperationsOf returns the operations of a socket, or nil if the port does not watch it for any.
// The slot is locked.
func (s *Slot) OperationsOf(fd *fdstate.FD) Operations {
	if s.word.Load()&wOverlapped == 0 {
		return nil
	}
	if reg := s.Reg.Load(); reg.fd == fd {
		return reg.Work.Operations
	}
	return nil
}

// Stream reports whether the registered socket is a stream.
func (s *Slot) Stream() bool { return s.word.Load()&wStream != 0 }

// Holds polls a registered socket for conditions.
func (p *Port) Holds(s *Slot, h Socket, conditions Events) bool {
	return meaning(p.Core.Poller.PollOne(h), conditions, s.Stream()) != EventNone
}

// Operate makes the port watch a socket for operations in a direction. If it cannot, it returns a
// kind or a cause. The slot is locked.
func (p *Port) Operate(
	w *Call, s *Slot, socket *sock.Socket, ops Operations, d fdstate.Dir,
) (kind, err error) {
	r := &Entry{
		FD: fdstate.Of(socket.SyscallConn()), Filter: EventIn, Op: OpEnable, Trigger: TriggerLevel,
		Work: &Work{Socket: socket, Operations: ops},
	}
	if d == fdstate.Send {
		r.Filter = EventOut
	}
	var f *failure
	switch was := s.word.Load(); {
	case was&wRegistered == 0:
		f = p.create(w, s, r, socket.Handle())
	case was&wOverlapped != 0: // for another socket, which is closed
		f = p.mismatch(w, s, r, socket.Handle(), ErrBadSocket, nil)
	default:
		f = p.mismatch(w, s, r, socket.Handle(), ErrInvalid, errRegistered)
	}
	if f != nil {
		return f.kind, f.err
	}
	return nil, nil
}

// operate carries out what a report allows. more reports that the backend must poll again. The slot
// is locked.
func (p *Port) operate(
	w *Call, s *Slot, reg *Record, held sock.Held, m backend.Mask, out Entries,
) (n int, more bool) {
	// A call that would have blocked before the report may not block any more. What the generation
	// before said of short receives and of lasting conditions is kept, because it may have been
	// made by a later report.
	notify(reg.fd, m)
	d := moved(m)
	ops := reg.Work.Operations
	n, more = ops.Reported(held, d, out)
	w.stripe.completions.Add(uint64(n))
	f := ops.Awaited()
	p.countWaiting(w.stripe, s, f != EventNone)
	switch {
	case f == EventNone || p.Core.Edges && f&^wordFilter(s.word.Load()) == 0:
	case p.Core.Edges:
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		more = true
	default:
		// The backend does not report any more; what operations still wait for must be watched
		// again.
		s.update(func(v uint64) uint64 { return v&^wFilter | uint64(f) })
		if h := reg.fd.Handle(); d&directions(f) != 0 && p.persists(h, s) {
			p.recheckAfter(recheckDelay, uint32(h), 0)
			return n, false
		}
		more = true
	}
	return n, more
}

// Await makes the backend watch what the first operations wait for. The slot is locked.
func (p *Port) Await(w *Call, s *Slot, index uint32, f Events) {
	was := s.word.Load()
	if p.Core.Edges {
		if f&^wordFilter(was) == 0 {
			return // the backend watches it already
		}
		f |= wordFilter(was)
	}
	_, is := s.update(func(v uint64) uint64 { return nextEpoch(v, flagMask&^wFilter, uint64(f)) })
	c := backend.Change{
		Handle: Socket(index), Action: backend.Set, Token: token(is, index),
		Interest: p.Core.interest(is),
	}
	switch p.change(w, c).Status {
	case backend.Done:
	case backend.Absent, backend.Bad: // the handle was closed without the sock.Socket
		p.end(s, index)
	default:
		p.recheckAfter(recheckDelay, index, 0)
	}
}

// WatchAlso makes the backend poll again, also for what operations wait for now. The slot is
// locked.
func (p *Port) WatchAlso(s *Slot, index uint32, f Events) {
	if f != EventNone {
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		p.Recheck(s, index)
	}
}

// CountWaiting counts a socket whose operations have begun to wait for it, or wait no more. w may
// be nil. The slot is locked, and has a registration for operations.
func (p *Port) CountWaiting(w *Call, s *Slot) {
	t := &p.Core.Stripes[0]
	if w != nil {
		t = w.stripe
	}
	p.countWaiting(t, s, !s.Reg.Load().Work.idle())
}

func (p *Port) countWaiting(t *stripe, s *Slot, waits bool) {
	if waits == s.waits {
		return
	}
	k := &p.Waiters
	if s.waits = waits; !waits {
		t.operating.Add(-1)
		k.wakeHelper() // it ends with the last operation
		return
	}
	t.operating.Add(1)
	if k.help.Load() == helpNone {
		k.timeHelp(helpNone)
	}
}

// NoteCompletion records a completion if the port is observed.
func (p *Port) NoteCompletion(index uint32) {
	if o := p.Core.Observer.Load(); o != nil {
		(*o).Notified((*o).Seen(index), Millis(), index, EventNone, Completion)
	}
}

// PutCompletion writes a completion into the first of some entries and ends the operation, if
// nothing is queued. Otherwise it queues the completion and returns false.
func (p *Port) PutCompletion(out Entries, pk Packet) bool {
	if out.Len() > 0 && !p.Waiters.queue.any() {
		p.typed.Put(out, 0, pk)
		(*Flight)(pk.Of).End()
		return true
	}
	p.typed.Enqueue(pk)
	return false
}

// sockShutSend tries the sends again that wait for a socket whose sending direction the program has
// shut.
func (p *Port) sockShutSend(t *fdstate.FD, handle uintptr) {
	if handle > MaxIndex {
		return
	}
	if !p.Core.Enter() {
		return
	}
	defer p.Core.Leave()
	if s := p.Table.Lookup(uint32(handle)); s != nil && s.sendShut(t) {
		p.Waiters.WakeOne(nil)
	}
}

func (s *Slot) sendShut(t *fdstate.FD) (queued bool) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	ops := s.OperationsOf(t)
	return ops != nil && ops.SendShut()
}

// interest returns what the backend must watch for a word. A backend without edges would go on
// reporting what no operation waits for.
func (c *Core) interest(word uint64) backend.Mask {
	m := unreported(word)
	if word&wOverlapped != 0 && !c.Edges {
		m &^= backend.Urgent
		if wordFilter(word)&EventIn == 0 {
			m &^= backend.PeerClosed
		}
	}
	return m
}
