package port

import (
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"
	"weak"

	"github.com/socknotify/socknotify/internal/backend"
)

// transfers are the operations on files that io_uring carries out, where the system has it. Those that it does not take, or
// fails at, go to the goroutines (files), which find the error.
//
// The operations belong to the port: io_uring knows them by a number, and the backend keeps their buffers.
type transfers struct {
	Room backend.Files

	Mu     sync.Mutex
	free   []uint8 // tokens
	flight []*Overlapped
	conns  map[uintptr]weak.Pointer[fileConn] // by the address of the file
	limit  int                                // of conns
	ended  [16]backend.Transferred
}

// MaxNow is the number of bytes that a starting call copies at most, if they are in memory.
const MaxNow = 64 << 10

// A fileConn is what the port keeps of a file. The garbage collector takes it when no operation is being started on the
// file. It does not keep the file.
type fileConn struct {
	file *os.File
	raw  syscall.RawConn
	use  backend.FileUse
}

// newTransfers returns nil if the backend has no such operations.
func newTransfers(k backend.Poller) *transfers {
	room, ok := k.(backend.Files)
	if !ok {
		return nil
	}
	return &transfers{Room: room}
}

// start carries an operation out if it need not wait, or gives it to io_uring. If it returns false it has done neither.
func (t *transfers) start(p *Port, o *Overlapped) bool {
	if t == nil || len(o.Buf) == 0 || o.off < 0 || o.off+int64(len(o.Buf)) < 0 {
		return false // package os returns the error
	}
	w := p.Begin()
	if w == nil {
		return false
	}
	defer p.End(w)
	if !t.begin(w, o) {
		return false
	}
	t.gather(w) // it may have ended
	p.wakeForQueue()
	if t.Room.Transferring() && !p.Core.Watching.Load() {
		p.Core.Watching.Store(true)
		p.Waiters.appointLeader(p.Core)
	}
	return true
}

// begin gives an operation, or the rest of one, to io_uring.
func (t *transfers) begin(w *Call, o *Overlapped) bool {
	c := t.conn(w, o.File)
	if c == nil {
		return false
	}
	w.transfer, w.use, w.begun = o, c.use, false
	c.raw.Control(w.onFile)
	w.transfer = nil
	return w.begun // it may have completed already, and be in use again
}

// onFile is called while the file cannot be closed.
func (t *transfers) onFile(w *Call) {
	o := w.transfer
	b, off := o.Buf[o.N:], o.off+int64(o.N)
	if o.kind == OpRead && w.use.ReadNow {
		n, ok := t.Room.ReadNow(w.fd, b[:min(len(b), MaxNow)], off)
		switch o.N += n; {
		case ok && n == 0:
			o.Err = io.EOF
			fallthrough
		case n == len(b):
			to := outlet{p: w.port}
			to.complete(o)
			w.begun = true
			return
		case n == MaxNow:
			return // the rest is probably in memory too, and would take the caller time
		}
		b, off = b[n:], off+int64(n)
	}
	write := o.kind == OpWrite
	if write && !w.use.Write || !write && !w.use.Read || !t.list(o) {
		return
	}
	if w.begun = t.Room.StartTransfer(w.fd, uint32(o.token), write, b, off); !w.begun {
		t.Mu.Lock()
		defer t.Mu.Unlock()
		t.unlist(uint32(o.token))
		o.at.Store(0)
	}
}

// conn returns the fileConn of a file, or nil if the file is closed.
func (t *transfers) conn(w *Call, f *os.File) *fileConn {
	if w.onFile == nil {
		w.onFile = func(fd uintptr) { w.fd = fd; t.onFile(w) }
	}
	at := uintptr(unsafe.Pointer(f))
	t.Mu.Lock()
	c := t.conns[at].Value()
	t.Mu.Unlock()
	if c != nil {
		return c // it keeps the file reachable, so the address has not been reused
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	c = &fileConn{file: f, raw: raw}
	if raw.Control(func(fd uintptr) { c.use = t.Room.Suits(fd) }) != nil {
		return nil
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if len(t.conns) >= t.limit {
		t.sweep()
	}
	t.conns[at] = weak.Make(c)
	return c
}

// sweep removes files that have been collected. The lock is held.
func (t *transfers) sweep() {
	if t.conns == nil {
		t.conns = make(map[uintptr]weak.Pointer[fileConn])
	}
	for at, c := range t.conns {
		if c.Value() == nil {
			delete(t.conns, at)
		}
	}
	t.limit = 2*len(t.conns) + 16
}

// list gives an operation a token, if there is one left.
func (t *transfers) list(o *Overlapped) bool {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if t.flight == nil {
		t.flight = make([]*Overlapped, backend.MaxTransfers)
		t.free = make([]uint8, backend.MaxTransfers)
		for i := range t.free {
			t.free[i] = uint8(i)
		}
	}
	last := len(t.free) - 1
	if last < 0 {
		return false
	}
	o.token, t.free = t.free[last], t.free[:last]
	o.canceled = false
	t.flight[o.token] = o
	o.at.Store(atKernel)
	return true
}

// unlist removes an operation. The lock is held.
func (t *transfers) unlist(token uint32) *Overlapped {
	o := t.flight[token]
	t.flight[token] = nil
	t.free = append(t.free, uint8(token))
	return o
}

// gather queues the completions of transfers that have ended, and continues those that moved a part.
func (t *transfers) gather(w *Call) {
	if t != nil && t.Room.Due() {
		t.gatherDue(w)
	}
}

func (t *transfers) gatherDue(w *Call) {
	for t.Room.Due() {
		var rest opList
		t.collect(w.port, &rest)
		for o := rest.first; o != nil; o = rest.first {
			rest.remove(o)
			if !o.begun && t.begin(w, o) {
				continue
			}
			if !w.port.Files.submit(o) {
				o.Forget()
				o.End()
			}
		}
	}
}

// collect completes transfers that have ended. Operations that still have bytes to move are appended to rest.
func (t *transfers) collect(p *Port, rest *opList) {
	to := outlet{p: p}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	for i := range t.ended[:t.Room.Transferred(t.ended[:])] {
		e := &t.ended[i]
		o := t.unlist(e.Token)
		o.N += e.N
		switch {
		case o.N == len(o.Buf):
		case e.Status == backend.Moved && e.N == 0 && o.kind == OpRead:
			o.Err = io.EOF
		case o.canceled:
			o.Err = &OperationError{Op: o.kind.String(), Handle: NoSocket, Kind: ErrCanceled}
		default:
			// io_uring is asked again for the rest of a part. The goroutines handle what it has failed at.
			o.begun = e.Status == backend.Failed || e.Status == backend.Moved && e.N == 0
			o.at.Store(0)
			rest.push(o)
			continue
		}
		to.complete(o)
	}
}

// cancel asks io_uring to cancel an operation, which then completes. False means that io_uring does not have it.
func (t *transfers) cancel(w *Call, o *Overlapped) bool {
	t.Mu.Lock()
	if o.at.Load() != atKernel || o.Core.Load() != w.port.Core {
		t.Mu.Unlock()
		return false
	}
	o.canceled = true
	t.Room.CancelTransfer(uint32(o.token))
	t.Mu.Unlock()
	t.gather(w)
	w.port.wakeForQueue()
	return true
}

// drop ends the operations that io_uring had when the port was closed.
func (t *transfers) drop() {
	if t == nil {
		return
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	for i, o := range t.flight {
		if o != nil {
			t.unlist(uint32(i))
			o.Forget()
			o.at.Store(0)
			o.End()
		}
	}
}
