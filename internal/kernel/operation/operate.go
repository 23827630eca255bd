package operation

import (
	"errors"
	"io"
	"net"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/lost"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// maxTurn is the number of bytes after which the operations of a socket make way for others.
const maxTurn = 1 << 20

// Reported carries out what a report in some directions allows.
func (ops *operations) Reported(
	held sock.Held, d fdstate.Dir, out port.Entries,
) (n int, more bool) {
	to := outlet{port: ops.port, out: out}
	more = ops.operate(held, d, &to)
	return to.n, more
}

// operate carries out the first operations of these directions, and those that follow, until they
// would block. more reports that it stopped earlier, to make way for other sockets.
func (ops *operations) operate(held sock.Held, d fdstate.Dir, to *outlet) (more bool) {
	if d&fdstate.Send != 0 {
		connecting := ops.connects > 0
		more = ops.operateIn(fdstate.Send, held, to)
		if connecting && ops.connects == 0 {
			d |= fdstate.Recv // receives have waited for the connect
		}
	}
	if d&fdstate.Recv != 0 && ops.connects == 0 {
		more = ops.operateIn(fdstate.Recv, held, to) || more
	}
	return more
}

func (ops *operations) operateIn(d fdstate.Dir, held sock.Held, to *outlet) (more bool) {
	l := ops.list(d)
	for room := maxTurn; l.first != nil; {
		o := l.first
		if o.kind != Connect && ops.fd.Drained(d) {
			return false // what comes later is reported
		}
		had := o.N
		done := ops.attempt(o, held)
		room -= o.N - had
		switch {
		case done:
			l.remove(o)
			if o.kind == Connect {
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

// attempt makes the system call of an operation, and reports whether the operation is done. It is
// not if the call would have blocked, or if there is more to send.
func (ops *operations) attempt(o *Overlapped, held sock.Held) (done bool) {
	var n int
	var err error
	switch o.kind {
	case Recv, RecvFrom, RecvPooled:
		if len(o.Buf) == 0 && o.Pool == nil {
			return ops.lost != nil ||
				ops.port.Holds(ops.slot, ops.fd.Handle(), port.EventIn|port.EventHangup)
		}
		if o.kind == RecvFrom {
			n, o.Addr, err = held.Socket().RecvFrom(o.Buf)
		} else {
			o.equip()
			n, err = held.Recv(o.Buf)
			o.unequip(n)
		}
	case Send:
		for room := maxTurn; ; {
			n, err = held.Send(o.Buf[o.N:])
			if err != nil || n == len(o.Buf)-o.N {
				break
			}
			o.N += n
			if room -= n; room <= 0 {
				return false
			}
		}
	case SendTo:
		if err = held.Socket().SendTo(o.Buf, o.Addr); err == nil {
			n = len(o.Buf)
		}
	case Connect:
		if !o.begun {
			ops.lost = nil // it was that of an earlier connection
		}
		err = o.connect(held.Socket())
	case Accept:
		err = held.Socket().AcceptInto(o.Into)
		if spare := ops.port.Core.Spare; spare != nil && sock.IsExhausted(err) {
			accept := func() error { return held.Socket().AcceptInto(o.Into) }
			err = spare(unsafe.Pointer(o), accept)
		}
		if err == sock.ErrWouldBlock && ops.port.ListenerShut(ops.fd.Handle()) {
			err = port.ErrListenerShut
		}
	}
	if err == sock.ErrWouldBlock {
		return false
	}
	o.N += n
	if err != nil && o.kind != Accept {
		err = ops.explain(o.kind, held, err)
	} else if o.kind == Send && n > 0 {
		ops.lost = nil // the program has connected it again
	}
	o.Err = o.cause(ops.socket.Handle(), err)
	return true
}

// explain returns the error with which an operation completes, for the error of its system call.
func (ops *operations) explain(kind Kind, held sock.Held, err error) error {
	if !lost.Silent(err) {
		ops.remember(err, kind == Connect)
		return err
	}
	if ops.lost == nil && kind.sends() && ops.slot.Stream() {
		// A send on a Unix stream leaves the error for a receive.
		if why := held.Socket().Err(); why != nil {
			ops.remember(why, false)
		}
	}
	if ops.lost != nil {
		return ops.lost
	}
	return err
}

// remember keeps an error if it has ended the connection of a stream.
func (ops *operations) remember(err error, connect bool) {
	if ops.lost != nil || !ops.slot.Stream() {
		return
	}
	dead := func() bool {
		return ops.port.Core.Poller.PollOne(ops.fd.Handle())&backend.Dead != 0
	}
	if lost.Certain(err) || (connect || lost.Possible(err)) && dead() {
		ops.lost = err
	}
}

// connect starts to connect, or finds out how that ended. A report alone does not say that it has
// ended, because it may be from before.
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
func (o *Overlapped) cause(h port.Socket, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	var of *sock.Error
	if errors.As(err, &of) {
		err = of.Err // so that the socket and the call are named once
	}
	e := &Error{Op: o.kind.String(), Handle: h, Err: err}
	if errors.Is(err, net.ErrClosed) {
		e.Kind = port.ErrBadSocket
	}
	return e
}
