package port

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/sock"
)

// A joint is a batch of system calls that a backend.Batcher makes together, for the first operations of many sockets. It
// holds the locks of their slots. A call that holds a slot's lock never waits for another, so a joint does not either: a
// slot that is locked is left out, or the joint is ended before.
type joint struct {
	n       int // number of calls
	k       int // number of sockets
	calls   [MaxJoint]backend.Exchange
	sockets [MaxJoint]ahead // for a harvest, at the indexes of its reports
}

// MaxJoint is the number of sockets and of calls in a joint: as many as a harvest has reports.
const MaxJoint = maxReports

// An ahead is a socket whose system calls are made before the rest of its handling. If slot is nil, the socket need only
// be released.
type ahead struct {
	slot *Slot
	reg  *Record
	held sock.Held
	dirs fdstate.Dir
	made [2]early // index: the direction
}

// An early is a system call that is made before the rest, for the first operation of a direction.
type early struct {
	call       *backend.Exchange // or nil
	generation uint64            // of the socket, before the call
}

func (a *ahead) call(d fdstate.Dir) *early {
	if a == nil || a.made[d>>1].call == nil {
		return nil
	}
	return &a.made[d>>1]
}

// recv returns the outcome of the call, or receives now.
func (e *early) recv(held sock.Held, b []byte) (int, error) {
	if e == nil {
		return held.Recv(b)
	}
	return held.Made(false, e.call.Buf, e.generation, e.call.N, e.call.Err)
}

func (e *early) send(held sock.Held, b []byte) (int, error) {
	if e == nil {
		return held.Send(b)
	}
	return held.Made(true, e.call.Buf, e.generation, e.call.N, e.call.Err)
}

// add adds the call of a direction's first operation, if it can be made together with others.
func (j *joint) add(a *ahead, d fdstate.Dir) {
	ops := &a.reg.Work.operations
	o := ops.list(d).first
	if o == nil || ops.connects > 0 || j.n == len(j.calls) || a.reg.fd.Drained(d) {
		return
	}
	switch o.kind {
	case OpRecv, OpRecvPooled, OpSend:
		o.equip()
	default:
		return
	}
	if o.N == len(o.Buf) {
		return
	}
	c := &j.calls[j.n]
	j.n++
	b, generation := a.held.Ahead(d == fdstate.Send, o.Buf[o.N:])
	*c = backend.Exchange{Handle: a.reg.fd.Handle(), Buf: b, Send: d == fdstate.Send}
	a.made[d>>1] = early{c, generation}
}

// make makes the calls together, if there are enough of them. Those that it leaves out are made one by one later.
func (j *joint) make(c *Core) {
	if j.n >= c.least {
		c.Batcher.Exchange(j.calls[:j.n])
	}
	for i := range j.sockets[:j.k] {
		a := &j.sockets[i]
		for d := range a.made {
			if e := &a.made[d]; e.call != nil && !e.call.Made {
				e.call = nil
				a.reg.Work.list(fdstate.Dir(1 + d)).first.unequip(0)
			}
		}
	}
}

// end releases the sockets. No slot may be locked, because the last use of a closed socket closes it, for which the port
// locks its slot. j may be nil.
func (j *joint) end() {
	if j == nil {
		return
	}
	for i := range j.sockets[:j.k] {
		a := &j.sockets[i]
		held := a.held
		if *a = (ahead{}); held != (sock.Held{}) {
			held.Release()
		}
	}
	clear(j.calls[:j.n])
	j.n, j.k = 0, 0
}

// together returns the call's joint.
func (w *Call) together() *joint {
	if w.joint == nil {
		w.joint = new(joint)
	}
	return w.joint
}

// gatherReports makes the calls of the first operations that the reports concern. It returns nil if there are none to be
// made together.
func (p *Port) gatherReports(w *Call, ready []backend.Ready) *joint {
	if p.Core.Batcher == nil || len(ready) < p.Core.least {
		return nil
	}
	j := w.together()
	j.k = len(ready)
	for i := range ready {
		p.gatherReport(j, &j.sockets[i], &ready[i])
	}
	j.make(p.Core)
	return j
}

// gatherReport locks the slot of a report, if its socket has operations. If it cannot, the report is handled when the report
// is delivered.
func (p *Port) gatherReport(j *joint, a *ahead, r *backend.Ready) {
	s := p.Table.Lookup(tokenIndex(r.Token))
	const all = WRegistered | WEnabled | wOverlapped
	if s == nil || s.Word.Load()&all != all || !s.Mu.TryLock() {
		return
	}
	if was := s.Word.Load(); SameEpoch(was, r.Token) && was&all == all {
		reg := s.Reg.Load()
		if held, err := reg.Work.Socket.Hold(); err == nil {
			*a = ahead{slot: s, reg: reg, held: held, dirs: moved(r.Mask)}
			reg.noteReported(r.Mask)
			j.addAll(a)
			return
		}
	}
	s.Mu.Unlock()
}

func (j *joint) addAll(a *ahead) {
	for _, d := range [...]fdstate.Dir{fdstate.Recv, fdstate.Send} {
		if a.dirs&d != 0 {
			j.add(a, d)
		}
	}
}

// workOn is work for a report whose slot has been locked and whose calls have been made.
func (p *Port) workOn(w *Call, a *ahead, r *backend.Ready, out Entries) (n int, again bool) {
	n, more := p.operateOn(w, a.slot, a.reg, a.held, r.Mask, out, a)
	again = more && p.markRecheck(a.slot, tokenIndex(r.Token), r.Token)
	a.slot.Mu.Unlock()
	return n, again
}

// gatherStart starts an operation whose call CarryOut makes, if that can be left to it.
func (p *Port) gatherStart(w *Call, s *sock.Socket, o *Overlapped) error {
	if o.kind == OpConnect {
		p.CarryOut(w) // calls that have been added are not for a socket that is connecting
		_, err := p.submit(w, s, o)
		return err
	}
	held, err := s.Hold()
	if err != nil {
		return o.cause(NoSocket, err)
	}
	sl, err := p.slotFor(s, o)
	if err != nil {
		held.Release()
		return err
	}
	j := w.together()
	d := o.kind.direction()
	if j.k > 0 && j.sockets[j.k-1].slot == sl && sl.watchesFor(s) {
		held.Release() // which is not the last
		a := &j.sockets[j.k-1]
		if first, _ := p.place(w, sl, s, o); first {
			a.dirs |= d
			j.add(a, d)
		}
		return nil
	}
	if j.k == MaxJoint || j.n == MaxJoint || !sl.Mu.TryLock() {
		p.CarryOut(w)
		sl.Mu.Lock()
	}
	if j.k > 0 && !sl.watchesFor(s) {
		sl.Mu.Unlock()
		p.CarryOut(w) // it may have to wait for another port
		sl.Mu.Lock()
	}
	first, err := p.place(w, sl, s, o)
	a := &j.sockets[j.k]
	j.k++
	a.held = held
	if !first || err != nil {
		sl.Mu.Unlock()
		return err
	}
	a.slot, a.reg, a.dirs = sl, sl.Reg.Load(), d
	j.add(a, d)
	return nil
}

// CarryOut makes the calls of operations that have been started, and handles their results. Afterwards no slot is locked.
func (p *Port) CarryOut(w *Call) {
	j := w.joint
	if j == nil || j.k == 0 {
		return
	}
	j.make(p.Core)
	for i := range j.sockets[:j.k] {
		if a := &j.sockets[i]; a.slot != nil {
			p.proceed(w, a.slot, a.held, a.reg.fd.Handle(), a.dirs, a)
			a.slot.Mu.Unlock()
		}
	}
	j.end()
}
