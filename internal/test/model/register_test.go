//go:build unix || windows

package model

import (
	"errors"

	"github.com/socknotify/socknotify"
)

// An expectation is what an entry's Result must be: nil, or an error of this kind.
type expectation struct {
	op   Op
	num  int
	kind error
}

// apply acts on the model as an entry acts on the port, and tells what the entry is to be.
func (w *world) apply(ps *portState, op Op, num int) (socknotify.Registration[int], expectation) {
	owner, r := w.byNum[num], ps.regs[num]
	closed := op.BySock && owner == nil // has no number, so the port looks at none
	if closed {
		r = nil
	}
	if r != nil && (r.gone || r.file != owner) {
		// Every operation finds out that the socket is gone (G9, G12).
		w.over(ps, r)
		r = nil
	}
	want := expectation{op: op, num: num}
	entry := socknotify.Registration[int]{Handle: uintptr(num), Result: errors.New("stale")}
	if op.BySock {
		entry.Handle, entry.Conn = 0, w.slots[op.Sock].file.sock // closed, unless it has the number
		if owner != nil {
			entry.Conn = owner.sock
		}
	}
	switch op.Do {
	case Enable:
		entry.Op, entry.Key = socknotify.OpEnable, w.chooseKey(ps, r, op, num)
		entry.Filter, entry.Trigger = op.Filter, op.Trigger
		vouched := r != nil && w.drained(r, op.Filter)
		entry.Drained = op.Drained && vouched
		switch {
		case owner == nil:
			want.kind = socknotify.ErrBadSocket
		case r != nil && r.key != entry.Key:
			want.kind = socknotify.ErrKeyMismatch
		case r == nil && w.elsewhere(ps, num, owner):
			want.kind = socknotify.ErrOtherPort
		default:
			w.enable(ps, r, owner, num, &entry, vouched && (entry.Drained || op.BySock))
		}
		return entry, want
	case Disable:
		entry.Op = socknotify.OpDisable
	default:
		entry.Op = socknotify.OpRemove
	}
	switch {
	case owner == nil && !closed:
		want.kind = socknotify.ErrBadSocket
	case r == nil:
		want.kind = socknotify.ErrNotRegistered
	case op.Do == Disable:
		w.fence(r)
		r.enabled, r.pending = false, 0
	default:
		w.over(ps, r)
		if op.Do == Remove {
			ps.removes[r.key]++
		}
	}
	return entry, want
}

func (w *world) chooseKey(ps *portState, r *reg, op Op, num int) int {
	switch old, ok := ps.oldKey[num]; {
	case op.Key == keyKeep && r != nil:
		return r.key
	case op.Key == keyOld && ok:
		return old
	}
	w.key++
	return w.key
}

// elsewhere reports whether another port has the socket (P5).
func (w *world) elsewhere(ps *portState, num int, f *file) bool {
	for _, other := range w.ports {
		if r := other.regs[num]; other != ps && r != nil && r.file == f && !r.gone {
			return true
		}
	}
	return false
}

// drained reports whether Drained is true (X5): nothing was notified since each direction would have
// blocked. With waiters an unknown notification may be on its way; only the holder of a
// one-shot notification can tell then.
func (w *world) drained(r *reg, filter events) bool {
	if filter == 0 || w.waiters != nil && (!r.oneShot() || r.fired == 0 || r.budget != 0) {
		return false
	}
	f := r.file
	in := filter&(socknotify.EventIn|socknotify.EventHangup) == 0 || f.recvBlocked && f.recvAt > r.notified
	out := filter&socknotify.EventOut == 0 || f.sendBlocked && f.sendAt > r.notified
	return in && out
}

func (w *world) enable(ps *portState, r *reg, f *file, num int, entry *socknotify.Registration[int], vouched bool) {
	if r == nil {
		r = &reg{num: num, key: entry.Key, file: f, notified: w.now()}
		ps.regs[num] = r
		ps.byKey[r.key] = append(ps.byKey[r.key], r)
		ps.oldKey[num] = r.key
	}
	w.fence(r)
	r.filter, r.trigger = entry.Filter, entry.Trigger
	r.spans = append(r.spans, &span{w.now(), -1, r.filter, r.oneShot()})
	r.enabled, r.fired, r.since = true, 0, w.now()
	r.tied = r.tied || entry.Conn != nil
	if w.waiters != nil {
		r.budget++ // one may have been taken already
	} else {
		r.budget = 1
	}
	m := f.look(w.now())
	r.held = f.standing(m)
	r.pending &= r.filter | socknotify.EventErr
	r.silent = 0
	if vouched {
		r.pending |= f.holds(m) & r.filter // it began after the would-block
	}
	if ps.strict && !entry.Drained && (!vouched || f.urged) {
		// A socket that has shut its receiving direction is hung up already (E3).
		r.silent = r.held | f.may(m)&socknotify.EventHangup
	}
	if !r.edge() {
		r.pending = 0
	}
}

// fence ends the time in which the registration may notify as it was.
func (w *world) fence(r *reg) {
	for _, s := range r.spans {
		if s.to == -1 {
			s.to = -2
			w.fences = append(w.fences, s)
		}
	}
}

// over ends a registration.
func (w *world) over(ps *portState, r *reg) {
	w.fence(r)
	r.enabled = false
	if ps.regs[r.num] == r {
		delete(ps.regs, r.num)
	}
}

// fenced is called after the operations: calls that begin now return nothing from before.
func (w *world) fenced() {
	now := w.tick()
	for _, s := range w.fences {
		s.to = now
	}
	w.fences = w.fences[:0]
}

// judge compares an entry's Result with what was expected.
func (w *world) judge(e expectation, result error) {
	if !errors.Is(result, e.kind) {
		w.fail("%v of %d: Result is %v, want %v", e.op.Do, e.num, result, e.kind)
	}
}

// submit makes the entries of the port's batch, and op's if it is one, and prepares to judge them.
func (w *world) submit(ps *portState) ([]socknotify.Registration[int], []expectation) {
	var entries []socknotify.Registration[int]
	var wants []expectation
	for _, op := range ps.batch {
		entry, want := w.apply(ps, op, w.slots[op.Sock].num)
		entries, wants = append(entries, entry), append(wants, want)
	}
	ps.batch = nil
	return entries, wants
}

// process is one call of Process, checked.
func (w *world) process(ps *portState, out []notification, wait waitFor) int {
	entries, wants := w.submit(ps)
	n := w.dequeue(ps, entries, out, wait)
	for i := range entries {
		w.judge(wants[i], entries[i].Result)
	}
	return n
}

// flush makes the calls that the batches of all ports wait for.
func (w *world) flush() {
	for _, ps := range w.ports {
		if len(ps.batch) > 0 {
			w.process(ps, nil, now)
		}
	}
}
