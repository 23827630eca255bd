package port

import "github.com/socknotify/socknotify/internal/fdstate"

// operations are those in flight on one socket. They are guarded by the slot's lock. The first of each direction is being
// carried out.
type operations struct {
	recvs, sends opList
	connects     int // among the sends
	// lost is the error that ended the connection of a stream, once the system has reported it. The system reports it to
	// one call only: a later receive gets the end of the stream, and a later send a broken pipe.
	lost error
}

// idle reports whether no operation is in flight.
func (ops *operations) idle() bool { return ops.recvs.first == nil && ops.sends.first == nil }

// pending reports whether operations of some directions are in flight.
func (ops *operations) pending(d fdstate.Dir) bool {
	return d&fdstate.Recv != 0 && ops.recvs.first != nil || d&fdstate.Send != 0 && ops.sends.first != nil
}

func (ops *operations) list(d fdstate.Dir) *opList {
	if d == fdstate.Send {
		return &ops.sends
	}
	return &ops.recvs
}

// awaited returns the conditions that the first operations wait for.
func (ops *operations) awaited() Events {
	var f Events
	if ops.recvs.first != nil && ops.connects == 0 {
		f |= EventIn
	}
	if ops.sends.first != nil {
		f |= EventOut
	}
	return f
}

type opList struct{ first, last *Overlapped }

func (l *opList) push(o *Overlapped) {
	if l.last == nil {
		l.first = o
	} else {
		l.last.next = o
	}
	l.last = o
}

// remove removes an operation. It is nearly always the first.
func (l *opList) remove(o *Overlapped) {
	var before *Overlapped
	for at := l.first; at != o; at = at.next {
		before = at
	}
	if before == nil {
		l.first = o.next
	} else {
		before.next = o.next
	}
	if l.last == o {
		l.last = before
	}
	o.next = nil
}

// abortAll completes all operations on a socket with an error. The slot is locked.
func (p *Port) abortAll(ops *Work, index uint32, why error) {
	to := outlet{p: p}
	for _, l := range [...]*opList{&ops.sends, &ops.recvs} {
		for l.first != nil {
			o := l.first
			l.remove(o)
			o.Err = o.cause(Socket(index), why)
			to.complete(o)
		}
	}
	ops.connects = 0
	if to.queued {
		p.Waiters.WakeOne(p.Core, nil)
	}
}

// cancelAt cancels an operation that waits for a socket. False means that it is not there any more.
func (p *Port) cancelAt(o *Overlapped, at uint32) bool {
	index := at - 1
	s := p.Table.Lookup(index)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if o.at.Load() != at || o.Core.Load() != p.Core {
		return false
	}
	ops := s.Reg.Load().Work
	ops.list(o.kind.direction()).remove(o)
	connect := o.kind == OpConnect
	if connect {
		ops.connects--
	}
	o.Err = &OperationError{Op: o.kind.String(), Handle: Socket(index), Kind: ErrCanceled}
	to := outlet{p: p}
	to.complete(o)
	p.Waiters.WakeOne(p.Core, nil)
	if f := ops.awaited(); connect && f != EventNone {
		// Operations that waited for the connect proceed. What they need may have been reported already.
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		p.Recheck(s, index, WEnabled|wOverlapped)
	}
	return true
}
