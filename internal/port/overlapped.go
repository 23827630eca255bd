package port

import (
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/fdstate"
)

// An Overlapped is an operation without its key.
type Overlapped struct {
	// Core is of the port that the operation is in flight on, or nil.
	Core atomic.Pointer[Core]
	// at is where it waits: a slot's index + 1, atFile or atKernel. It is written under the lock of that place.
	at   atomic.Uint32
	kind OpKind
	// begun tells that a connect has been told to the system, or that it has failed at a read or write.
	begun bool
	// canceled tells that the kernel was asked to give it up, and token what that knows it by.
	canceled bool
	token    uint8

	N   int
	Err error

	Buf  []byte
	next *Overlapped    // of its direction, or of the files' queue
	Addr netip.AddrPort // to connect to or send to, or the sender of what was received
	File *os.File
	off  int64
	Pool *BufferPool // that buf is from, while there is one; or nil
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

// atFile stands for the files' queue.
const atFile = ^uint32(0)

// atKernel stands for the kernel, and is above every slot.
const atKernel = atFile - 1

// direction is whose list a kind of operation belongs to.
func (k OpKind) direction() fdstate.Dir {
	if k.sends() {
		return fdstate.Send
	}
	return fdstate.Recv
}

// Reserve makes the operation one that is in flight on a port. false says that it is in flight already; what
// was in flight on a port that is no more never completes (O10).
func (o *Overlapped) Reserve(c *Core) bool {
	was := o.Core.Load()
	if was != nil && !was.Over() || !o.Core.CompareAndSwap(was, c) {
		return false
	}
	if was != nil {
		// The port was closed as it was: on a list that is no more, with others that are not to be carried out.
		o.next = nil
		o.at.Store(0)
	}
	return true
}

// End makes the operation the caller's again.
func (o *Overlapped) End() { o.Core.Store(nil) }

// Over tells that nothing on the port completes any more, and nobody uses a buffer of it.
func (c *Core) Over() bool { return c.down.Load() && c.jobs.Load() == 0 }

// Forget drops the arguments.
func (o *Overlapped) Forget() {
	o.ClearKey(o.Rec)
	o.next, o.File = nil, nil
	if o.Pool == nil {
		o.Buf = nil
	}
}

// Reserve makes an operation one that is being started, with what it has in common with others.
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

// equip gives a receive from a pool its buffer, for as long as it takes to find out that there is nothing.
func (o *Overlapped) equip() {
	if o.Pool != nil && o.Buf == nil {
		o.Buf = o.Pool.get()
	}
}

// unequip takes from it what has not been filled.
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

// Cancel ends an operation that is in flight on the port.
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
			return nil // it has been completed
		case atFile:
			if p.Files.cancel(p, o) {
				return nil
			}
		case atKernel:
			if p.Transfers.cancel(w, o) {
				return nil
			}
		default:
			if p.cancelAt(o, at) {
				return nil
			}
		}
	}
}
