package socknotify

import (
	"errors"
	"io"
	"net"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/lost"
	"github.com/socknotify/socknotify/internal/tie"
	"github.com/socknotify/socknotify/sock"
)

// maxTurn is after how many bytes a socket's operations let others have their turn.
const maxTurn = 1 << 20

// heed begins the turn of a report, of a socket with operations: what would have blocked before it was taken need
// not any more. What a turn before it said of short receives and of what stands is kept, because that may have been
// the turn of a later report.
func (r *record) heed(m kernel.Mask) { notify(r.tie, m) }

// operateOn carries out operations that a report says something for. more says that the kernel has to look
// again. The slot is locked.
func (p *port) operateOn(w *call, s *slot, reg *record, held sock.Held, m kernel.Mask, out entries, a *ahead) (n int, more bool) {
	t := reg.tie
	to := outlet{p: p, out: out}
	h := t.Handle()
	d := moved(m)
	more = p.operate(&reg.work.operations, s, t, held, h, d, &to, a)
	w.stripe.completions.Add(uint64(to.n))
	f := reg.work.awaited()
	watched := wordFilter(s.word.Load())
	switch {
	case f == EventNone:
	case p.core.edges && f&^watched == 0:
	case p.core.edges:
		s.update(func(v uint64) uint64 { return v | uint64(f) })
		more = true
	default:
		// The kernel is silent now, and has to be told what is still waited for.
		s.update(func(v uint64) uint64 { return v&^wFilter | uint64(f) })
		if d&waiting(f) != 0 && p.stands(h, s) {
			p.later(longWhile, uint32(h))
			return to.n, false
		}
		more = true
	}
	return to.n, more
}

// moved are the directions that a report says something for.
func moved(m kernel.Mask) tie.Dir {
	var d tie.Dir
	if m&(kernel.In|kernel.Urgent|kernel.PeerClosed|kernel.Dead|kernel.Err) != 0 {
		d |= tie.Recv
	}
	if m&(kernel.Out|kernel.Dead|kernel.Err) != 0 {
		d |= tie.Send
	}
	return d
}

func waiting(f Events) tie.Dir {
	var d tie.Dir
	if f&EventIn != 0 {
		d |= tie.Recv
	}
	if f&EventOut != 0 {
		d |= tie.Send
	}
	return d
}

// operate carries out what is first in these directions, and then what follows, as far as that goes without
// blocking. more says that it stopped before that, for the others' sake. The first calls may have been made ahead.
func (p *port) operate(ops *operations, s *slot, t *tie.Tie, held sock.Held, h Socket, d tie.Dir, to *outlet, a *ahead) (more bool) {
	if a != nil {
		// Both directions' calls may have been made: the error that one of them got is the other's as well.
		for i := range a.made {
			if e := a.made[i]; e.call != nil && e.call.Err != nil {
				p.remember(ops, s, h, e.call.Err, false)
			}
		}
	}
	if d&tie.Send != 0 {
		connecting := ops.connects > 0
		more = p.operateIn(ops, s, t, held, h, tie.Send, to, a.call(tie.Send))
		if connecting && ops.connects == 0 {
			d |= tie.Recv // they have waited for that
		}
	}
	if d&tie.Recv != 0 && ops.connects == 0 {
		more = p.operateIn(ops, s, t, held, h, tie.Recv, to, a.call(tie.Recv)) || more
	}
	return more
}

func (p *port) operateIn(ops *operations, s *slot, t *tie.Tie, held sock.Held, h Socket, d tie.Dir, to *outlet, e *early) (more bool) {
	l := ops.list(d)
	for room := maxTurn; l.first != nil; {
		o := l.first
		if o.kind != opConnect && e == nil && t.Drained(d) {
			return false // and if anything has come since, the kernel reports it
		}
		had := o.n
		done := p.attempt(ops, o, s, held, h, e)
		e = nil
		room -= o.n - had
		switch {
		case done:
			l.remove(o)
			if o.kind == opConnect {
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
func (p *port) attempt(ops *operations, o *overlapped, s *slot, held sock.Held, h Socket, e *early) (done bool) {
	var n int
	var err error
	switch o.kind {
	case opRecv, opRecvFrom, opRecvPooled:
		if len(o.buf) == 0 && o.pool == nil {
			stream := s.word.Load()&wStream != 0
			return ops.lost != nil || meaning(p.core.kernel.Look(h), EventIn|EventHangup, stream) != EventNone
		}
		if o.kind == opRecvFrom {
			n, o.addr, err = held.Socket().RecvFrom(o.buf)
		} else {
			o.equip()
			n, err = e.recv(held, o.buf)
			o.unequip(n)
		}
	case opSend:
		for room := maxTurn; ; {
			n, err = e.send(held, o.buf[o.n:])
			e = nil
			if err != nil || n == len(o.buf)-o.n {
				break
			}
			o.n += n
			if room -= n; room <= 0 {
				return false
			}
		}
	case opSendTo:
		if err = held.Socket().SendTo(o.buf, o.addr); err == nil {
			n = len(o.buf)
		}
	case opConnect:
		if !o.begun {
			ops.lost = nil // of an earlier connection
		}
		err = o.connect(held.Socket())
	}
	if err == sock.ErrWouldBlock {
		return false
	}
	o.n += n
	if err != nil {
		err = p.explain(ops, o.kind, s, held, h, err)
	} else if o.kind == opSend && n > 0 {
		ops.lost = nil // the program has connected it again
	}
	o.err = o.cause(h, err)
	return true
}

// explain returns the error that an operation completes with, for one of its system call.
func (p *port) explain(ops *operations, kind opKind, s *slot, held sock.Held, h Socket, err error) error {
	if !lost.Silent(err) {
		p.remember(ops, s, h, err, kind == opConnect)
		return err
	}
	if ops.lost == nil && kind.sends() && s.word.Load()&wStream != 0 {
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
func (p *port) remember(ops *operations, s *slot, h Socket, err error, connect bool) {
	if ops.lost != nil || s.word.Load()&wStream == 0 {
		return
	}
	if lost.Certain(err) || (connect || lost.Possible(err)) && p.core.kernel.Look(h)&kernel.Dead != 0 {
		ops.lost = err
	}
}

// connect begins to connect, or finds out what has come of it. A report alone says nothing: it may be from
// before.
func (o *overlapped) connect(s *sock.Socket) error {
	if !o.begun {
		o.begun = true
		return s.Connect(o.addr)
	}
	if err := s.Err(); err != nil || s.RemoteAddr().IsValid() {
		return err
	}
	return sock.ErrWouldBlock
}

// notStarted is the error of a start that create or mismatch has refused.
func (o *overlapped) notStarted(h Socket, err error) error {
	var of *OpError
	if !errors.As(err, &of) {
		return err
	}
	return &OverlappedError{Op: o.kind.String(), Socket: h, Kind: of.Kind, Err: of.Err}
}

// cause is the error of an operation's result.
func (o *overlapped) cause(h Socket, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var of *sock.Error
	if errors.As(err, &of) {
		err = of.Err // which socket and call is said once
	}
	e := &OverlappedError{Op: o.kind.String(), Socket: h, Err: err}
	if errors.Is(err, net.ErrClosed) {
		e.Kind = ErrBadSocket
	}
	return e
}
