package port

import (
	"io"

	"github.com/socknotify/socknotify/sock"
)

// receive lets the kernel carry out the first receive of a socket, if the backend has that (backend.Receiver). The slot is
// locked.
//
// The report of its end is only a hint, because it may be stale by the time that it is delivered. The outcome is read by
// the next call that operates on the socket, under the slot's lock.
func (p *Port) receive(s *Slot, ops *operations, held sock.Held, h Socket) bool {
	if ops.receiving {
		return true
	}
	o := ops.recvs.first
	if p.Core.Receiver == nil || o.kind != OpRecv || len(o.Buf) == 0 || s.Word.Load()&wStream == 0 {
		return false
	}
	if ops.kernel == nil {
		ops.kernel = new(kernelReceive)
		ops.kernel.made.call = &ops.kernel.Exchange
	}
	r := ops.kernel
	r.Buf, r.made.generation = held.Ahead(false, o.Buf)
	if ops.receiving = p.Core.Receiver.Receive(h, &r.Receive); !ops.receiving {
		r.Buf = nil
		return false
	}
	s.update(func(v uint64) uint64 { return v &^ uint64(EventIn) })
	return true
}

// byKernel removes from the awaited conditions what the kernel receives by itself.
func (p *Port) byKernel(f Events, s *Slot, ops *operations, held sock.Held, h Socket) Events {
	if f&EventIn != 0 && p.receive(s, ops, held, h) {
		f &^= EventIn
	}
	return f
}

// outcome returns the outcome of a receive by the kernel that has ended, as a call that was made before the rest. It is nil
// if nothing was received and there was no error.
func (ops *operations) outcome() *early {
	ops.endReceive()
	if ops.kernel.Void {
		ops.kernel.Buf = nil
		return nil
	}
	return &ops.kernel.made
}

// endReceive ends the backend's reports of a receive that has ended.
func (ops *operations) endReceive() {
	ops.receiving = false
	ops.kernel.Ended.Store(false)
}

// revokeReceive takes the buffer of a socket that is no longer watched back from the kernel. The first receive completes if
// it got something first. If the kernel keeps the buffer, the receive never completes.
func (p *Port) revokeReceive(ops *operations, to *outlet) {
	if !ops.receiving {
		return
	}
	o, r := ops.recvs.first, &ops.kernel.Receive
	if !p.Core.Receiver.Revoke(r) {
		ops.recvs.remove(o)
		return
	}
	ops.endReceive()
	r.Buf = nil
	if r.Void || r.Err != nil {
		return
	}
	ops.recvs.remove(o)
	if o.N = r.N; r.N == 0 {
		o.Err = io.EOF
	}
	to.complete(o)
}

// cancelReceive cancels the receive that the kernel carries out. If it has a result already, the receive completes with
// that. The slot is locked.
func (p *Port) cancelReceive(s *Slot, ops *Work, index uint32) bool {
	r := &ops.kernel.Receive
	if !p.Core.Receiver.Revoke(r) || !r.Void {
		return true // it is reported
	}
	ops.endReceive()
	r.Buf = nil
	o := ops.recvs.first
	ops.recvs.remove(o)
	o.Err = &OperationError{Op: o.kind.String(), Handle: Socket(index), Kind: ErrCanceled}
	to := outlet{p: p}
	to.complete(o)
	p.Waiters.WakeOne(p.Core, nil)
	if ops.recvs.first != nil {
		s.update(func(v uint64) uint64 { return v | uint64(EventIn) })
		p.Recheck(s, index, WEnabled|wOverlapped)
	}
	return true
}

// detach makes a socket without operations in flight free for other completion ports. The slot is locked, so the socket is
// not closed.
func (p *Port) detach(index uint32) {
	if r := p.Core.Receiver; r != nil {
		r.Detach(Socket(index))
	}
}

// detachAll does that for all sockets, when the port is being closed. No call is inside.
func (p *Port) detachAll() {
	if p.Core.Receiver == nil {
		return
	}
	pages := p.Table.pages.all()
	for at := range pages {
		pg := pages[at].Load()
		if pg == nil {
			continue
		}
		for i := range pg {
			if s := &pg[i]; s.Word.Load()&wOverlapped != 0 {
				p.detachOpen(uint32(at*pageSize+i), s.Reg.Load().Work)
			}
		}
	}
}

func (p *Port) detachOpen(index uint32, ops *Work) {
	held, err := ops.Socket.Hold()
	if err != nil {
		return // the socket is closed
	}
	defer held.Release()
	if !ops.receiving || p.Core.Receiver.Revoke(&ops.kernel.Receive) {
		p.detach(index)
	}
}
