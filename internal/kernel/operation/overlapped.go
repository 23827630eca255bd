package operation

import (
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// An Overlapped is an operation without its key.
type Overlapped struct {
	port.Flight // first, because the port knows no more of an operation
	// at is the list that the operation is on: a slot's index + 1, or atFile. It is written under
	// the lock of that list.
	at    atomic.Uint32
	kind  Kind
	begun bool // a connect was started

	N   int
	Err error

	Buf  []byte
	next *Overlapped    // in the list of its direction, or in the queue of files
	Addr netip.AddrPort // the address to connect to or send to, or that of the sender
	file *os.File
	off  int64
	Pool *BufferPool  // the pool of Buf, or nil
	Into *sock.Socket // the Socket that a connection is accepted into
	Rec  *port.Record // has the key; the Overlapped and its key are allocated together
}

// A Kind is what an operation does.
type Kind uint8

const (
	Recv Kind = iota
	RecvFrom
	RecvPooled
	Send
	SendTo
	Connect
	Accept
	Read
	Write
)

var names = [...]string{"recv", "recvfrom", "recv", "send", "sendto", "connect", "accept", "read",
	"write"}

var callNames = [...]string{
	"Recv", "RecvFrom", "RecvPooled", "Send", "SendTo", "Connect", "Accept", "ReadAt",
	"WriteAt",
}

func (k Kind) String() string { return names[k] }

// Call returns the name of the function that starts such an operation.
func (k Kind) Call() string { return callNames[k] }

func (k Kind) sends() bool { return k == Send || k == SendTo || k == Connect }

// atFile stands for the queue of files. It is greater than any slot.
const atFile = ^uint32(0)

// direction returns the direction in which an operation waits.
func (k Kind) direction() fdstate.Dir {
	if k.sends() {
		return fdstate.Send
	}
	return fdstate.Recv
}

// Reserve reserves an operation for a port and sets the fields that all kinds of operation have.
func Reserve(p *port.Port, kind Kind, b []byte, o *Overlapped) error {
	switch {
	case p.Core.Closed.Load():
		return port.ErrClosed
	case o == nil:
		return port.CallError(kind.Call(), "a nil Overlapped")
	case !o.Begin(p.Core):
		return port.CallError(kind.Call(), "the Overlapped is in flight")
	}
	if o.at.Load() != 0 {
		// A port that was closed has left it on a list, with other operations that must not be
		// carried out.
		o.next = nil
		o.at.Store(0)
	}
	o.kind, o.begun, o.N, o.Err = kind, false, 0, nil
	o.Buf, o.Pool, o.Into = b, nil, nil
	return nil
}

// forget drops the arguments.
func (o *Overlapped) forget() {
	o.next, o.file, o.Into = nil, nil, nil
	if o.Pool == nil {
		o.Buf = nil
	}
}

// giveUp ends an operation that never completes.
func (o *Overlapped) giveUp() {
	o.forget()
	o.at.Store(0)
	o.End()
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
func Cancel(p *port.Port, o *Overlapped) error {
	if !p.Core.Enter() {
		return port.ErrClosed
	}
	defer p.Core.Leave()
	for {
		if !o.On(p.Core) {
			return ErrNotInFlight
		}
		switch at := o.at.Load(); at {
		case 0:
			return nil // it has completed
		case atFile:
			if filesOf(p.Core).cancel(p, o) {
				return nil
			}
		default:
			if cancelAt(p, o, at) {
				return nil
			}
		}
	}
}

// A BufferPool is a pool of buffers of one size.
type BufferPool struct {
	Size int
	free sync.Pool // of *byte: the first of size bytes
}

// Put gives a buffer back. One without room for size bytes is ignored.
func (p *BufferPool) Put(b []byte) {
	if p.Size > 0 && cap(b) >= p.Size {
		p.free.Put(unsafe.SliceData(b))
	}
}

func (p *BufferPool) get() []byte {
	b, _ := p.free.Get().(*byte)
	if b == nil {
		return make([]byte, p.Size)
	}
	return unsafe.Slice(b, p.Size)
}
