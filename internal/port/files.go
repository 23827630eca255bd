package port

import (
	"os"
	"runtime"
	"sync"
	"weak"
)

// files are a port's operations on files that the kernel does not carry out by itself (transfers). No system tells
// the readiness of a file: a few goroutines carry them out, and end when there are none left. They do not keep
// the port.
type files struct {
	port weak.Pointer[Port]
	core *Core
	work func() // made once, so that a goroutine starts without an allocation

	Mu      sync.Mutex
	waiting opList
	Workers int
	left    sync.Cond // the last worker has ended
	closed  bool
}

// MaxWorkers is how many files are read or written at once: enough to keep a disk busy, while each of them
// may hold a thread.
const MaxWorkers = 8

func newFiles(p weak.Pointer[Port], c *Core) *files {
	f := &files{port: p, core: c}
	f.left.L = &f.Mu
	f.work = func() {
		for o := f.next(); o != nil; o = f.next() {
			o.transfer()
			f.done(o)
		}
	}
	return f
}

// StartFile begins an operation on a file that has been claimed.
func (p *Port) StartFile(file *os.File, off int64, o *Overlapped) error {
	o.File, o.off = file, off
	if !p.Transfers.start(p, o) && !p.Files.submit(o) {
		o.Forget()
		o.End()
		return ErrClosed
	}
	runtime.KeepAlive(p)
	return nil
}

// submit queues an operation; false says that the port is closed.
func (f *files) submit(o *Overlapped) bool {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.closed {
		return false
	}
	f.core.jobs.Add(1)
	o.at.Store(atFile)
	f.waiting.push(o)
	if f.Workers < MaxWorkers {
		f.Workers++
		go f.work()
	}
	return true
}

// next takes the next operation, which cannot be canceled any more. With nil the worker ends.
func (f *files) next() *Overlapped {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.port.Value() == nil {
		f.drop()
	}
	o := f.waiting.first
	if o == nil {
		if f.Workers--; f.Workers == 0 {
			f.left.Broadcast()
		}
		return nil
	}
	f.waiting.remove(o)
	o.at.Store(0)
	return o
}

// transfer is the operation, or what the kernel has left of it.
func (o *Overlapped) transfer() {
	var n int
	var err error
	if o.kind == OpRead {
		n, err = o.File.ReadAt(o.Buf[o.N:], o.off+int64(o.N))
	} else {
		n, err = o.File.WriteAt(o.Buf[o.N:], o.off+int64(o.N))
	}
	o.N += n
	o.Err = o.cause(NoSocket, err)
}

// done completes an operation, if its port still exists.
func (f *files) done(o *Overlapped) {
	p := f.port.Value()
	if p == nil || !f.core.Stripes[0].Enter(f.core) {
		f.abandon(o)
		return
	}
	to := outlet{p: p}
	to.complete(o)
	p.Waiters.WakeOne(p.Core, nil)
	f.core.Stripes[0].Leave(f.core)
	f.core.jobs.Add(-1)
}

// abandon gives an operation back that never completes (O10).
func (f *files) abandon(o *Overlapped) {
	o.Forget()
	o.at.Store(0)
	o.End()
	f.core.jobs.Add(-1)
}

// cancel completes an operation that nobody has begun. false says that it is queued no longer.
func (f *files) cancel(p *Port, o *Overlapped) bool {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if o.at.Load() != atFile || o.Core.Load() != f.core {
		return false
	}
	f.waiting.remove(o)
	o.Err = &OperationError{Op: o.kind.String(), Handle: NoSocket, Kind: ErrCanceled}
	to := outlet{p: p}
	to.complete(o)
	p.Waiters.WakeOne(p.Core, nil)
	f.core.jobs.Add(-1)
	return true
}

// close drops what nobody has begun, and waits for what somebody has.
func (f *files) close() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.closed = true
	f.drop()
	for f.Workers > 0 {
		f.left.Wait()
	}
}

func (f *files) drop() {
	for o := f.waiting.first; o != nil; o = f.waiting.first {
		f.waiting.remove(o)
		f.abandon(o)
	}
}
