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

// MaxTurn is after how many bytes a socket's operations let others have their turn.
const MaxTurn = 1 << 20

// noteReported begins the turn of a report, of a socket with operations: what would have blocked before it was taken need
// not any more. What a turn before it said of short receives and of what stands is kept, because that may have been
// the turn of a later report.
func (r *Record) noteReported(m backend.Mask) { notify(r.fd, m) }

// operateOn carries out operations that a report says something for. more says that the kernel has to look
// again. The slot is locked.
func (p *Port) operateOn(w *Call, s *Slot, reg *Record, held sock.Held, m backend.Mask, out Entries, a *ahead) (n int, more bool) {
	t := reg.fd
	to := outlet{p: p, out: out}
	h := t.Handle()
	d := moved(m)
	more = p.operate(&reg.Work.operations, s, t, held, h, d, &to, a)
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
		// The kernel is silent now, and has to be told what is still waited for.
		s.update(func(v uint64) uint64 { return v&^wFilter | uint64(f) })
		if d&waiting(f) != 0 && p.persists(h, s) {
			p.later(recheckDelay, uint32(h))
			return to.n, false
		}
		more = true
	}
	return to.n, more
}

// moved are the directions that a report says something for.
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

// operate carries out what is first in these directions, and then what follows, as far as that goes without
// blocking. more says that it stopped before that, for the others' sake. The first calls may have been made ahead.
func (p *Port) operate(ops *operations, s *Slot, t *fdstate.FD, held sock.Held, h Socket, d fdstate.Dir, to *outlet, a *ahead) (more bool) {
	if a != nil {
		// Both directions' calls may have been made: the error that one of them got is the other's as well.
		for i := range a.made {
			if e := a.made[i]; e.call != nil && e.call.Err != nil {
				p.remember(ops, s, h, e.call.Err, false)
			}
		}
	}
	if d&fdstate.Send != 0 {
		connecting := ops.connects > 0
		more = p.operateIn(ops, s, t, held, h, fdstate.Send, to, a.call(fdstate.Send))
		if connecting && ops.connects == 0 {
			d |= fdstate.Recv // they have waited for that
		}
	}
	if d&fdstate.Recv != 0 && ops.connects == 0 {
		more = p.operateIn(ops, s, t, held, h, fdstate.Recv, to, a.call(fdstate.Recv)) || more
	}
	return more
}

func (p *Port) operateIn(ops *operations, s *Slot, t *fdstate.FD, held sock.Held, h Socket, d fdstate.Dir, to *outlet, e *early) (more bool) {
	l := ops.list(d)
	for room := MaxTurn; l.first != nil; {
		o := l.first
		if o.kind != OpConnect && e == nil && t.Drained(d) {
			return false // and if anything has come since, the kernel reports it
		}
		had := o.N
		done := p.attempt(ops, o, s, held, h, e)
		e = nil
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

// attempt makes an operation's system call, unless that was made ahead, and tells whether that was the end of it. It
// is not where the call would have blocked, or there is more to be sent.
func (p *Port) attempt(ops *operations, o *Overlapped, s *Slot, held sock.Held, h Socket, e *early) (done bool) {
	var n int
	var err error
	switch o.kind {
	case OpRecv, OpRecvFrom, OpRecvPooled:
		if len(o.Buf) == 0 && o.Pool == nil {
			stream := s.Word.Load()&wStream != 0
			return ops.lost != nil || meaning(p.Core.Poller.Look(h), EventIn|EventHangup, stream) != EventNone
		}
		if o.kind == OpRecvFrom {
			n, o.Addr, err = held.Socket().RecvFrom(o.Buf)
		} else {
			o.equip()
			n, err = e.recv(held, o.Buf)
			o.unequip(n)
		}
	case OpSend:
		for room := MaxTurn; ; {
			n, err = e.send(held, o.Buf[o.N:])
			e = nil
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
			ops.lost = nil // of an earlier connection
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

// explain returns the error that an operation completes with, for one of its system call.
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

// remember keeps an error if it is what ended the connection of a stream.
func (p *Port) remember(ops *operations, s *Slot, h Socket, err error, connect bool) {
	if ops.lost != nil || s.Word.Load()&wStream == 0 {
		return
	}
	if lost.Certain(err) || (connect || lost.Possible(err)) && p.Core.Poller.Look(h)&backend.Dead != 0 {
		ops.lost = err
	}
}

// connect begins to connect, or finds out what has come of it. A report alone says nothing: it may be from
// before.
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

// cause is the error of an operation's result.
func (o *Overlapped) cause(h Socket, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var of *sock.Error
	if errors.As(err, &of) {
		err = of.Err // which socket and call is said once
	}
	e := &OperationError{Op: o.kind.String(), Handle: h, Err: err}
	if errors.Is(err, net.ErrClosed) {
		e.Kind = ErrBadSocket
	}
	return e
}
