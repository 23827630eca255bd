package port

import (
	"errors"
	"io"
	"net"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/fdstate"
	"github.com/socknotify/socknotify/internal/lost"
	"github.com/socknotify/socknotify/sock"
)

// MaxTurn is the number of bytes after which the operations of a socket make way for others.
const MaxTurn = 1 << 20

// noteReported advances the generation for a report of a socket with operations: a call that would have blocked before the
// report may not block any more. What the generation before said of short receives and of lasting conditions is kept,
// because it may have been made by a later report.
func (r *Record) noteReported(m backend.Mask) { notify(r.fd, m) }

// operateOn carries out the operations that a report concerns. more reports that the backend must poll again. The slot is
// locked.
func (p *Port) operateOn(w *Call, s *Slot, reg *Record, held sock.Held, m backend.Mask, out Entries) (n int, more bool) {
	t := reg.fd
	to := outlet{p: p, out: out}
	h := t.Handle()
	d := moved(m)
	more = p.operate(&reg.Work.operations, s, t, held, h, d, &to)
	w.stripe.completions.Add(uint64(to.n))
	f := reg.Work.awaited()
	watched := wordFilter(s.Word.Load())
	switch {
	case f == EventNone:
	case p.Core.Edges && f&^watched == 0:
	case p.Core.Edges:
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		more = true
	default:
		// The backend does not report any more; what operations still wait for must be watched again.
		s.update(func(v uint64) uint64 { return v&^wFilter | uint64(f) })
		if d&waiting(f) != 0 && p.persists(h, s) {
			p.later(recheckDelay, uint32(h))
			return to.n, false
		}
		more = true
	}
	return to.n, more
}

// moved returns the directions that a report concerns.
func moved(m backend.Mask) fdstate.Dir {
	var d fdstate.Dir
	if m&(backend.In|backend.Urgent|backend.PeerClosed|backend.Dead|backend.Err) != 0 {
		d |= fdstate.Recv
	}
	if m&(backend.Out|backend.Dead|backend.Err) != 0 {
		d |= fdstate.Send
	}
	return d
}

func waiting(f Events) fdstate.Dir {
	var d fdstate.Dir
	if f&EventIn != 0 {
		d |= fdstate.Recv
	}
	if f&EventOut != 0 {
		d |= fdstate.Send
	}
	return d
}

// operate carries out the first operations of these directions, and those that follow, until they would block. more reports
// that it stopped earlier, to make way for other sockets.
func (p *Port) operate(
	ops *operations, s *Slot, t *fdstate.FD, held sock.Held, h Socket, d fdstate.Dir, to *outlet,
) (more bool) {
	if d&fdstate.Send != 0 {
		connecting := ops.connects > 0
		more = p.operateIn(ops, s, t, held, h, fdstate.Send, to)
		if connecting && ops.connects == 0 {
			d |= fdstate.Recv // receives have waited for the connect
		}
	}
	if d&fdstate.Recv != 0 && ops.connects == 0 {
		more = p.operateIn(ops, s, t, held, h, fdstate.Recv, to) || more
	}
	return more
}

func (p *Port) operateIn(
	ops *operations, s *Slot, t *fdstate.FD, held sock.Held, h Socket, d fdstate.Dir, to *outlet,
) (more bool) {
	l := ops.list(d)
	for room := MaxTurn; l.first != nil; {
		o := l.first
		if o.kind != OpConnect && t.Drained(d) {
			return false // what comes later is reported
		}
		had := o.N
		done := p.attempt(ops, o, s, held, h)
		room -= o.N - had
		switch {
		case done:
			l.remove(o)
			if o.kind == OpConnect {
				ops.connects--
			}
			to.complete(o)
		case room > 0:
			return false
		}
		if room <= 0 {
			return l.first != nil
		}
	}
	return false
}

// attempt makes the system call of an operation, and reports whether the operation is done. It is not if the call would have
// blocked, or if there is more to send.
func (p *Port) attempt(ops *operations, o *Overlapped, s *Slot, held sock.Held, h Socket) (done bool) {
	var n int
	var err error
	switch o.kind {
	case OpRecv, OpRecvFrom, OpRecvPooled:
		if len(o.Buf) == 0 && o.Pool == nil {
			stream := s.Word.Load()&wStream != 0
			return ops.lost != nil || meaning(p.Core.Poller.PollOne(h), EventIn|EventHangup, stream) != EventNone
		}
		if o.kind == OpRecvFrom {
			n, o.Addr, err = held.Socket().RecvFrom(o.Buf)
		} else {
			o.equip()
			n, err = held.Recv(o.Buf)
			o.unequip(n)
		}
	case OpSend:
		for room := MaxTurn; ; {
			n, err = held.Send(o.Buf[o.N:])
			if err != nil || n == len(o.Buf)-o.N {
				break
			}
			o.N += n
			if room -= n; room <= 0 {
				return false
			}
		}
	case OpSendTo:
		if err = held.Socket().SendTo(o.Buf, o.Addr); err == nil {
			n = len(o.Buf)
		}
	case OpConnect:
		if !o.begun {
			ops.lost = nil // it was that of an earlier connection
		}
		err = o.connect(held.Socket())
	}
	if err == sock.ErrWouldBlock {
		return false
	}
	o.N += n
	if err != nil {
		err = p.explain(ops, o.kind, s, held, h, err)
	} else if o.kind == OpSend && n > 0 {
		ops.lost = nil // the program has connected it again
	}
	o.Err = o.cause(h, err)
	return true
}

// explain returns the error with which an operation completes, for the error of its system call.
func (p *Port) explain(ops *operations, kind OpKind, s *Slot, held sock.Held, h Socket, err error) error {
	if !lost.Silent(err) {
		p.remember(ops, s, h, err, kind == OpConnect)
		return err
	}
	if ops.lost == nil && kind.sends() && s.Word.Load()&wStream != 0 {
		// A send on a Unix stream leaves the error for a receive.
		if why := held.Socket().Err(); why != nil {
			p.remember(ops, s, h, why, false)
		}
	}
	if ops.lost != nil {
		return ops.lost
	}
	return err
}

// remember keeps an error if it has ended the connection of a stream.
func (p *Port) remember(ops *operations, s *Slot, h Socket, err error, connect bool) {
	if ops.lost != nil || s.Word.Load()&wStream == 0 {
		return
	}
	if lost.Certain(err) || (connect || lost.Possible(err)) && p.Core.Poller.PollOne(h)&backend.Dead != 0 {
		ops.lost = err
	}
}

// connect starts to connect, or finds out how that ended. A report alone does not say that it has ended, because it may be
// from before.
func (o *Overlapped) connect(s *sock.Socket) error {
	if !o.begun {
		o.begun = true
		return s.Connect(o.Addr)
	}
	if err := s.Err(); err != nil || s.RemoteAddr().IsValid() {
		return err
	}
	return sock.ErrWouldBlock
}

// cause returns the error of an operation's result.
func (o *Overlapped) cause(h Socket, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var of *sock.Error
	if errors.As(err, &of) {
		err = of.Err // so that the socket and the call are named once
	}
	e := &OperationError{Op: o.kind.String(), Handle: h, Err: err}
	if errors.Is(err, net.ErrClosed) {
		e.Kind = ErrBadSocket
	}
	return e
}
