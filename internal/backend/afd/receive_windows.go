package afd

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/winsock"
)

// An operation is a receive by the kernel (WSARecv). While the kernel owns it, its entry is not freed, so its memory and the
// buffer stay reachable.
type operation struct {
	winsock.Receive // first: a packet has a pointer to it
	owner           *entry
	r               *backend.Receive // the latest; nil after the entry was dropped and the receive has ended
}

// Receive implements backend.Receiver.
func (p *Poller) Receive(handle uintptr, r *backend.Receive) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entries[handle]
	if e == nil || !e.stream || p.receiving(e) || !p.associate(e) {
		return false
	}
	op := &e.receive
	op.owner = e
	r.N, r.Err, r.Void, r.Kernel = 0, nil, false, unsafe.Pointer(op)
	r.Ended.Store(false)
	op.r = r
	switch started, err := op.Start(handle, r.Buf); {
	case started:
		p.receives[op] = struct{}{}
		p.out++
	case err == nil:
		op.r = nil
		return false
	default:
		op.end(0, false, err)
		p.again(e)
	}
	e.suppress()
	return true
}

// receiving reports whether the kernel owns the operation of an entry.
func (p *Poller) receiving(e *entry) bool {
	_, yes := p.receives[&e.receive]
	return yes
}

// operation returns the operation of a packet with keyReceive, which the kernel gives back. It is nil if the packet belongs
// to an overlapped call that the program has made by itself.
func (p *Poller) operation(pk *packet) *operation {
	op := (*operation)(unsafe.Pointer(pk.block))
	if _, ours := p.receives[op]; !ours {
		return nil
	}
	delete(p.receives, op)
	return op
}

// associate makes the receives of a socket complete on the port.
func (p *Poller) associate(e *entry) bool {
	if !e.associated && !e.alien {
		// A socket belongs to one completion port, which may be another one already. The handle of a provider between the
		// program and the system is not tried.
		e.alien = !receives() || e.base != e.handle
		if !e.alien {
			err := winsock.Associate(e.handle, uintptr(p.port), keyReceive)
			e.associated, e.alien = err == nil, err != nil
		}
	}
	return e.associated
}

// end gives the buffer back.
func (op *operation) end(n int, void bool, err error) {
	r := op.r
	r.N, r.Void, r.Err = n, void, err
	if op.owner.dead {
		op.r = nil
	}
	r.Ended.Store(true)
}

// ended handles the packet of a receive, and reports whether there is something to report.
func (p *Poller) ended(op *operation) bool {
	p.out--
	op.end(op.Result(op.owner.handle))
	if op.owner.dead {
		p.settle(op.owner)
		return false
	}
	return true
}

// repeat reports the end of a receive once more, if the port has not handled it. The token must be the latest: until it is,
// a report is stale, and may have been taken.
func (p *Poller) repeat(e *entry) {
	if e.receive.r != nil && e.receive.r.Ended.Load() {
		p.again(e)
	}
}

// again makes the next harvest report the end of a receive.
func (p *Poller) again(e *entry) {
	p.queueHeld(e)
	e.received = true
	p.waker.wake()
}

// Revoke implements backend.Receiver.
func (p *Poller) Revoke(r *backend.Receive) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !r.Ended.Load() {
		(*operation)(r.Kernel).cancel()
	}
	return p.awaitPackets(r.Ended.Load)
}

func (op *operation) cancel() { op.Cancel(op.owner.handle) }

// Detach implements backend.Receiver.
func (p *Poller) Detach(handle uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[handle]; e != nil && e.associated {
		winsock.Dissociate(handle)
		e.associated = false
	}
}

// receives reports whether the kernel may receive: whether a socket can be taken off a completion port, so that it is free
// for other ports and for package net afterwards. No Wine can do that. There, tests set SOCKNOTIFY_RECEIVING=1.
var receives = sync.OnceValue(func() bool {
	return os.Getenv("SOCKNOTIFY_RECEIVING") == "1" || probe() == nil
})

// probe associates a socket with a completion port, and takes it off again.
func probe() error {
	const flags = windows.WSA_FLAG_OVERLAPPED | windows.WSA_FLAG_NO_HANDLE_INHERIT
	s, err := windows.WSASocket(windows.AF_INET, windows.SOCK_STREAM, 0, nil, 0, flags)
	if err != nil {
		return err
	}
	defer windows.Closesocket(s)
	port, err := newPort()
	if err != nil {
		return err
	}
	defer windows.CloseHandle(port)
	if err := winsock.Associate(uintptr(s), uintptr(port), keyReceive); err != nil {
		return err
	}
	return winsock.Dissociate(uintptr(s))
}
