package operation

import (
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// Start starts a reserved operation on its socket, which stays open during the call. queued reports
// that completions were queued.
func Start(p *port.Port, w *port.Call, s *sock.Socket, o *Overlapped) (queued bool, err error) {
	if queued, err = start(p, w, s, o); err != nil {
		o.giveUp()
	}
	return queued, err
}

func start(p *port.Port, w *port.Call, s *sock.Socket, o *Overlapped) (queued bool, err error) {
	held, err := s.Hold()
	if err != nil {
		return false, o.cause(port.NoSocket, err)
	}
	defer held.Release() // after the unlock, because the last use closes the socket
	h := s.Handle()
	if h > port.MaxIndex {
		return false, &Error{Op: o.kind.String(), Handle: h, Kind: port.ErrBadSocket}
	}
	slot := p.Table.At(uint32(h))
	slot.Mu.Lock()
	defer slot.Mu.Unlock()
	fd := fdstate.Of(s.SyscallConn())
	ops, _ := slot.OperationsOf(fd).(*operations)
	if ops == nil {
		ops = &operations{port: p, slot: slot, socket: s, fd: fd}
		if kind, err := p.Operate(w, slot, s, ops, o.kind.direction()); kind != nil || err != nil {
			return false, &Error{Op: o.kind.String(), Handle: h, Kind: kind, Err: err}
		}
	}
	if !ops.place(o) {
		return false, nil
	}
	return ops.proceed(w, held, o.kind.direction()), nil
}

// place appends an operation to its socket's list. If it is not the first, the backend already
// watches what it waits for.
func (ops *operations) place(o *Overlapped) (first bool) {
	l := ops.list(o.kind.direction())
	l.push(o)
	o.at.Store(uint32(ops.socket.Handle()) + 1)
	if o.kind == Connect {
		ops.connects++
	}
	return l.first == o
}

// proceed carries out the first operations of a direction, which have just been started or can be
// tried again.
func (ops *operations) proceed(w *port.Call, held sock.Held, d fdstate.Dir) (queued bool) {
	to := outlet{port: ops.port}
	more := ops.operate(held, d, &to)
	index := uint32(ops.socket.Handle())
	ops.port.CountWaiting(w, ops.slot)
	if ops.pending(d) {
		ops.port.Await(w, ops.slot, index, ops.Awaited())
	}
	if more {
		ops.port.Recheck(ops.slot, index)
	}
	return to.queued
}

// SendShut carries out the sends that wait for a socket whose sending direction the program has
// shut. They fail now, but Linux does not report a Unix stream for that while what it has sent
// fills the peer's buffer.
func (ops *operations) SendShut() (queued bool) {
	if !ops.pending(fdstate.Send) {
		return false
	}
	held, err := ops.socket.Hold()
	if err != nil {
		return false // it is being closed, which completes them
	}
	defer held.Release() // not the last, because the call that shuts the direction holds one
	w := ops.port.Begin()
	if w == nil {
		return false
	}
	defer ops.port.End(w)
	ops.fd.Advance(false, false)
	return ops.proceed(w, held, fdstate.Send)
}
