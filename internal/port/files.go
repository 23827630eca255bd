package port

import (
	"os"
	"runtime"
	"sync"
	"weak"
)

// files are the operations on files. No system reports when a file can be read. So a few goroutines carry them out; they end
// when there are none left, and do not keep the port reachable.
type files struct {
	port weak.Pointer[Port]
	core *Core
	work func() // made once, so that starting a goroutine allocates nothing

	Mu      sync.Mutex
	waiting opList
	Workers int
	left    sync.Cond // the last worker has ended
	closed  bool
}

// MaxWorkers is the number of files that are read or written at once: enough to keep a disk busy. Each may hold a thread.
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

// StartFile starts a reserved operation on a file.
func (p *Port) StartFile(file *os.File, off int64, o *Overlapped) error {
	o.File, o.off = file, off
	if !p.Files.submit(o) {
		o.Forget()
		o.End()
		return ErrClosed
	}
	runtime.KeepAlive(p)
	return nil
}

// submit queues an operation. False means that the port is closed.
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

// next takes the next operation, which cannot be canceled any more. The worker ends if there is none.
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

// transfer carries out the operation.
func (o *Overlapped) transfer() {
	var n int
	var err error
	if o.kind == OpRead {
		n, err = o.File.ReadAt(o.Buf, o.off)
	} else {
		n, err = o.File.WriteAt(o.Buf, o.off)
	}
	o.N, o.Err = n, o.cause(NoSocket, err)
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

// abandon ends an operation that never completes (O10).
func (f *files) abandon(o *Overlapped) {
	o.Forget()
	o.at.Store(0)
	o.End()
	f.core.jobs.Add(-1)
}

// cancel cancels an operation that no worker has begun. False means that it is not queued any more.
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

// close drops the operations that no worker has begun, and waits for the others.
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
