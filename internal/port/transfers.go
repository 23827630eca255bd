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

// transfers are a port's operations on files that the kernel carries out by itself, where it can. What it does
// not take, or fails at, goes to the goroutines (files), which find the error that belongs to it.
//
// The operations belong to the port: the kernel's room knows them by a number, and keeps their buffers.
type transfers struct {
	Room backend.Files

	Mu     sync.Mutex
	free   []uint8 // tokens
	flight []*Overlapped
	conns  map[uintptr]weak.Pointer[fileConn] // by the address of the file
	limit  int                                // of conns
	ended  [16]backend.Transferred
}

// MaxNow is up to how many bytes are copied in the time of whoever starts a read.
const MaxNow = 64 << 10

// A fileConn is what the port knows of a file. The garbage collector takes it sooner or later when nothing is being
// started on the file, and the port does not keep the file.
type fileConn struct {
	file *os.File
	raw  syscall.RawConn
	use  backend.FileUse
}

// newTransfers returns nil for a kernel that cannot.
func newTransfers(k backend.Poller) *transfers {
	room, ok := k.(backend.Files)
	if !ok {
		return nil
	}
	return &transfers{Room: room}
}

// start carries an operation out if that takes no waiting, or else gives it to the kernel. If it returns false
// it has done neither.
func (t *transfers) start(p *Port, o *Overlapped) bool {
	if t == nil || len(o.Buf) == 0 || o.off < 0 || o.off+int64(len(o.Buf)) < 0 {
		return false // package os knows what that is
	}
	w := p.Begin()
	if w == nil {
		return false
	}
	defer p.End(w)
	if !t.begin(w, o) {
		return false
	}
	t.gather(w) // it may be done
	p.wakeForQueue()
	if t.Room.Transferring() && !p.Core.Watching.Load() {
		p.Core.Watching.Store(true)
		p.Waiters.appointLeader(p.Core)
	}
	return true
}

// begin is start, or another one for the rest.
func (t *transfers) begin(w *Call, o *Overlapped) bool {
	c := t.conn(w, o.File)
	if c == nil {
		return false
	}
	w.transfer, w.use, w.begun = o, c.use, false
	c.raw.Control(w.onFile)
	w.transfer = nil
	return w.begun // and then it may be over already, and in use for something else
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
			return // so is the rest, probably, and it would keep the caller
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

// conn looks a file up. It is nil for a file that is closed.
func (t *transfers) conn(w *Call, f *os.File) *fileConn {
	if w.onFile == nil {
		w.onFile = func(fd uintptr) { w.fd = fd; t.onFile(w) }
	}
	at := uintptr(unsafe.Pointer(f))
	t.Mu.Lock()
	c := t.conns[at].Value()
	t.Mu.Unlock()
	if c != nil {
		return c // it keeps the file, so the address is still that one's
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

// sweep takes the files out that are no more. The lock is held.
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

// unlist takes an operation out. The lock is held.
func (t *transfers) unlist(token uint32) *Overlapped {
	o := t.flight[token]
	t.flight[token] = nil
	t.free = append(t.free, uint8(token))
	return o
}

// gather queues the completions of transfers that have ended, and goes on with those that have moved a part.
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

// collect takes what has ended. What has not ended by that, for the operation, is put on a list.
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
			// The kernel is asked once more for what it has not moved or has given up; the goroutines know
			// what to make of the rest.
			o.begun = e.Status == backend.Failed || e.Status == backend.Moved && e.N == 0
			o.at.Store(0)
			rest.push(o)
			continue
		}
		to.complete(o)
	}
}

// cancel has the kernel asked to give an operation up, which completes then. false says that it has not got it.
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

// drop gives back what the kernel had when the port was closed.
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
