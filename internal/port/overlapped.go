package port

import (
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// An Overlapped is an operation without its key.
type Overlapped struct {
	// Core belongs to the port that the operation is in flight on; nil if it is not in flight.
	Core atomic.Pointer[Core]
	// at is the list that the operation is on: a slot's index + 1, or atFile. It is written under the lock of that list.
	at    atomic.Uint32
	kind  OpKind
	begun bool // a connect was started

	N   int
	Err error

	Buf  []byte
	next *Overlapped    // in the list of its direction, or in the queue of files
	Addr netip.AddrPort // the address to connect to or send to, or that of the sender
	File *os.File
	off  int64
	Pool *BufferPool // the pool of Buf, or nil
	Rec  *Record     // has the key; the Overlapped and its key are allocated together
	// ClearKey is the function of that name for the type of the key.
	ClearKey func(*Record)
}

type OpKind uint8

const (
	OpRecv OpKind = iota
	OpRecvFrom
	OpRecvPooled
	OpSend
	OpSendTo
	OpConnect
	OpRead
	OpWrite
)

var opNames = [...]string{"recv", "recvfrom", "recv", "send", "sendto", "connect", "read", "write"}

var callNames = [...]string{"Recv", "RecvFrom", "RecvPooled", "Send", "SendTo", "Connect", "ReadAt", "WriteAt"}

func (k OpKind) String() string { return opNames[k] }
func (k OpKind) Call() string   { return callNames[k] }
func (k OpKind) sends() bool    { return k == OpSend || k == OpSendTo || k == OpConnect }

// atFile stands for the queue of files. It is greater than any slot.
const atFile = ^uint32(0)

// direction returns the direction in which an operation waits.
func (k OpKind) direction() fdstate.Dir {
	if k.sends() {
		return fdstate.Send
	}
	return fdstate.Recv
}

// Reserve marks the operation as in flight on a port. False means that it is in flight already. An operation that was in
// flight on a port that is closed never completes (O10), and can be reserved.
func (o *Overlapped) Reserve(c *Core) bool {
	was := o.Core.Load()
	if was != nil && !was.Over() || !o.Core.CompareAndSwap(was, c) {
		return false
	}
	if was != nil {
		// The closed port left it on a list, with other operations that must not be carried out.
		o.next = nil
		o.at.Store(0)
	}
	return true
}

// End gives the operation back to the caller.
func (o *Overlapped) End() { o.Core.Store(nil) }

// Over reports that no operation on the port completes any more, and that none of their buffers is in use.
func (c *Core) Over() bool { return c.down.Load() && c.jobs.Load() == 0 }

// Forget drops the arguments.
func (o *Overlapped) Forget() {
	o.ClearKey(o.Rec)
	o.next, o.File = nil, nil
	if o.Pool == nil {
		o.Buf = nil
	}
}

// Reserve reserves an operation and sets the fields that all kinds of operation have.
func (p *Port) Reserve(kind OpKind, b []byte, o *Overlapped) error {
	switch {
	case p.Core.Closed.Load():
		return ErrClosed
	case o == nil:
		return CallError(kind.Call(), "a nil Overlapped")
	case !o.Reserve(p.Core):
		return CallError(kind.Call(), "the Overlapped is in flight")
	}
	o.kind, o.begun, o.N, o.Err = kind, false, 0, nil
	o.Buf, o.Pool = b, nil
	return nil
}

// equip gives a pooled receive a buffer for one system call.
func (o *Overlapped) equip() {
	if o.Pool != nil && o.Buf == nil {
		o.Buf = o.Pool.get()
	}
}

// unequip returns the buffer to the pool if nothing was received.
func (o *Overlapped) unequip(n int) {
	if o.Pool == nil {
		return
	}
	if n > 0 {
		o.Buf = o.Buf[:n]
		return
	}
	o.Pool.Put(o.Buf)
	o.Buf = nil
}

// Cancel cancels an operation that is in flight on the port.
func (p *Port) Cancel(o *Overlapped) error {
	w := p.Begin()
	if w == nil {
		return ErrClosed
	}
	defer p.End(w)
	for {
		if o.Core.Load() != p.Core {
			return ErrNotInFlight
		}
		switch at := o.at.Load(); at {
		case 0:
			return nil // it has completed
		case atFile:
			if p.Files.cancel(p, o) {
				return nil
			}
		default:
			if p.cancelAt(o, at) {
				return nil
			}
		}
	}
}
