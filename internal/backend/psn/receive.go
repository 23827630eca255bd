package psn

import (
	"runtime"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/backend"
)

// receiveKey is the key of the packets of overlapped calls on associated sockets. No entry has it, because its generation
// is 0.
const receiveKey = 2

// An association says whether the overlapped calls on an entry's socket complete on the port.
type association uint8

const (
	untried association = iota
	associated
	impossible // it belongs to another port, or is no stream
)

// An operation is the receives by the kernel from the socket of one entry, one at a time. While out is set, the kernel owns
// the Overlapped and the buffer, and the Poller keeps them reachable.
type operation struct {
	Overlapped
	handle uintptr
	e      *entry           // nil after the entry was dropped
	r      *backend.Receive // the latest
	out    bool
	due    bool // its end is among the pending packets
}

// Receive implements backend.Receiver. The registration stays as it is, so a packet of it may still come; it is not reported.
func (p *Poller) Receive(handle uintptr, r *backend.Receive) bool {
	if !p.sys.Receives {
		return false
	}
	p.mu.Lock()
	defer p.unlock()
	e := p.table.byHandle(handle)
	if e == nil || !p.associate(e) || p.receives[e].out {
		return false
	}
	op := p.receives[e]
	r.N, r.Err, r.Void, r.Kernel = 0, nil, false, unsafe.Pointer(op)
	r.Ended.Store(false)
	op.r = r
	started, err := op.Start(handle, r.Buf)
	if !started && err == nil {
		return false
	}
	e.disarm()
	if op.out = started; !started {
		op.end(0, false, err)
		p.owe(op)
	}
	return true
}

// associate makes the receives from an entry's socket complete on the port.
func (p *Poller) associate(e *entry) bool {
	if e.association != untried {
		return e.association == associated
	}
	kind, err := p.sys.Describe(e.handle)
	if err != nil || kind != backend.Stream || p.sys.Associate(e.handle, p.port, receiveKey) != nil {
		e.association = impossible
		return false
	}
	e.association = associated
	op := &operation{Overlapped: p.sys.NewOverlapped(), handle: e.handle, e: e}
	p.receives[e], p.operations[op.Address()] = op, op
	return true
}

// part separates an entry from its operation, which stays until the kernel has given the buffer back.
func (p *Poller) part(e *entry) {
	if e.association == associated {
		op := p.receives[e]
		delete(p.receives, e)
		op.e = nil
		p.settleOperation(op)
	}
	e.association = untried
}

func (p *Poller) settleOperation(op *operation) {
	if op.e == nil && !op.out {
		delete(p.operations, op.Address())
	}
}

// end sets the outcome of the latest receive.
func (op *operation) end(n int, void bool, err error) {
	r := op.r
	r.N, r.Void, r.Err = n, void, err
	r.Ended.Store(true)
}

// ended handles a packet with receiveKey. It returns the operation whose receive has ended, or nil if the packet belongs to
// an overlapped call that the program has made by itself. The packet's pointer is only compared.
func (p *Poller) ended(packet Entry) *operation {
	op := p.operations[packet.Overlapped]
	if op == nil || !op.out {
		return nil
	}
	op.out = false
	op.end(op.Result(op.handle))
	p.settleOperation(op)
	return op
}

// report reports the end of a receive, if the port has not handled it.
func (op *operation) report(ready *backend.Ready) int {
	if op == nil || op.e == nil || !op.r.Ended.Load() {
		return 0
	}
	*ready = backend.Ready{Token: op.e.token, Mask: backend.In}
	return 1
}

// owe makes the next harvest report the end of a receive, if the port has not handled it.
func (p *Poller) owe(op *operation) {
	if op != nil && op.e != nil && !op.due && op.r != nil && op.r.Ended.Load() {
		op.due = true
		p.pending = append(p.pending, pendingPacket{ended: op})
	}
}

// hold keeps a packet for the next harvest, except one that has nothing to report.
func (p *Poller) hold(packet Entry, old bool) {
	if packet.Key == receiveKey {
		p.owe(p.ended(packet))
		return
	}
	p.pending = append(p.pending, pendingPacket{Entry: packet, old: old})
}

// Revoke implements backend.Receiver. It unlocks p.mu while it waits, because a parked goroutine may have dequeued the
// packet.
func (p *Poller) Revoke(r *backend.Receive) bool {
	const tries, quick = 3000, 20
	p.mu.Lock()
	defer p.unlock()
	if op := (*operation)(r.Kernel); !r.Ended.Load() {
		op.Cancel(op.handle)
	}
	for try := 0; !r.Ended.Load() && try < tries; try++ {
		if try > 0 {
			p.unlock()
			if try < quick {
				runtime.Gosched()
			} else {
				time.Sleep(time.Millisecond)
			}
			p.mu.Lock()
		}
		p.drain(0)
	}
	return r.Ended.Load()
}

// Detach implements backend.Receiver.
func (p *Poller) Detach(handle uintptr) {
	p.mu.Lock()
	defer p.unlock()
	if e := p.table.byHandle(handle); e != nil && e.association == associated {
		p.sys.Dissociate(handle)
		p.part(e)
	}
}

// reclaim cancels all receives and waits for their packets. It returns those that the system keeps.
func (p *Poller) reclaim() (kept []Overlapped) {
	out := func() (all []Overlapped) {
		for _, op := range p.operations {
			if op.out {
				all = append(all, op)
			}
		}
		return all
	}
	for _, op := range p.operations {
		if op.out {
			op.Cancel(op.handle)
		}
	}
	for end := time.Now().Add(receiveWait); len(out()) > 0 && time.Now().Before(end); {
		p.drain(1)
	}
	return out()
}

// receiveWait limits the time that Close waits for the packets of receives.
const receiveWait = time.Second
