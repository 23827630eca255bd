package operation

import (
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// operations are those in flight on one socket, the port.Operations of its registration. They are
// guarded by the slot's lock. The first of each direction is being carried out.
type operations struct {
	port   *port.Port
	slot   *port.Slot
	socket *sock.Socket
	fd     *fdstate.FD // of socket

	recvs, sends list
	connects     int // among the sends
	// lost is the error that ended the connection of a stream, once the system has reported it. The
	// system reports it to one call only: a later receive gets the end of the stream, and a later
	// send a broken pipe.
	lost error
}

// pending reports whether operations of a direction are in flight.
func (ops *operations) pending(d fdstate.Dir) bool { return ops.list(d).first != nil }

func (ops *operations) list(d fdstate.Dir) *list {
	if d == fdstate.Send {
		return &ops.sends
	}
	return &ops.recvs
}

// Awaited returns the conditions that the first operations wait for.
func (ops *operations) Awaited() port.Events {
	var f port.Events
	if ops.recvs.first != nil && ops.connects == 0 {
		f |= port.EventIn
	}
	if ops.sends.first != nil {
		f |= port.EventOut
	}
	return f
}

// A list has the operations of one direction, or those on files.
type list struct{ first, last *Overlapped }

func (l *list) push(o *Overlapped) {
	if l.last == nil {
		l.first = o
	} else {
		l.last.next = o
	}
	l.last = o
}

// remove removes an operation. It is nearly always the first.
func (l *list) remove(o *Overlapped) {
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

// Abort completes all operations with an error.
func (ops *operations) Abort(why error) {
	to := outlet{port: ops.port}
	for _, l := range [...]*list{&ops.sends, &ops.recvs} {
		for l.first != nil {
			o := l.first
			l.remove(o)
			o.Err = o.cause(ops.socket.Handle(), why)
			to.complete(o)
		}
	}
	ops.connects = 0
	if to.queued {
		ops.port.Waiters.WakeOne(nil)
	}
}

// cancelAt cancels an operation that waits for a socket. False means that it is not there any more.
func cancelAt(p *port.Port, o *Overlapped, at uint32) bool {
	index := at - 1
	s := p.Table.Lookup(index)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if o.at.Load() != at || !o.On(p.Core) {
		return false
	}
	ops := s.Reg.Load().Work.Operations.(*operations)
	ops.list(o.kind.direction()).remove(o)
	connect := o.kind == Connect
	if connect {
		ops.connects--
	}
	o.Err = &Error{Op: o.kind.String(), Handle: port.Socket(index), Kind: ErrCanceled}
	to := outlet{port: p}
	to.complete(o)
	p.Waiters.WakeOne(nil)
	p.CountWaiting(nil, s)
	if connect {
		// Operations that waited for the connect proceed. What they need may have been reported
		// already.
		p.WatchAlso(s, index, ops.Awaited())
	}
	return true
}

// An outlet is where completions go: into the call's entries, if all earlier completions have been
// dequeued, and otherwise into the queue behind them (O3).
type outlet struct {
	port   *port.Port
	out    port.Entries
	n      int
	queued bool
}

// complete completes an operation that has its result and is on no list any more. The lock of its
// list is held: completions of a socket are queued under it, so an empty queue has none of them.
func (t *outlet) complete(o *Overlapped) {
	o.forget()
	if f := t.port.Core.Completed; f != nil {
		f(unsafe.Pointer(o)) // has returned when Cancel finds that the operation has completed
	}
	if at := o.at.Swap(0); at != 0 && at != atFile {
		t.port.NoteCompletion(at - 1)
	}
	pk := port.Packet{Rec: o.Rec, Of: unsafe.Pointer(o), Data: uintptr(o.N), Kind: port.Completion}
	if t.port.PutCompletion(t.out.From(t.n), pk) {
		t.n++
		return
	}
	t.queued = true
}
