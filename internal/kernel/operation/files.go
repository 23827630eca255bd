package operation

import (
	"os"
	"runtime"
	"sync"

	"github.com/socknotify/socknotify/internal/kernel/port"
)

// files are the operations on files of a port. No system reports when a file can be read. So a few
// goroutines carry them out; they end when there are none left, and do not keep the port reachable.
type files struct {
	core *port.Core
	work func() // made once, so that starting a goroutine allocates nothing

	mu      sync.Mutex
	waiting list
	workers int
	left    sync.Cond // the last worker has ended
}

// maxWorkers is the number of files that are read or written at once: enough to keep a disk busy.
// Each may hold a thread.
const maxWorkers = 8

// filesOf returns the operations on files of a port.
func filesOf(c *port.Core) *files {
	if f := c.Files.Load(); f != nil {
		return f.(*files)
	}
	f := &files{core: c}
	f.left.L = &f.mu
	f.work = func() {
		for o := f.next(); o != nil; o = f.next() {
			o.transfer()
			f.done(o)
		}
	}
	c.Files.CompareAndSwap(nil, f)
	return c.Files.Load().(*files)
}

// StartFile starts a reserved operation on a file.
func StartFile(p *port.Port, file *os.File, off int64, o *Overlapped) error {
	o.file, o.off = file, off
	if !p.Core.Enter() { // otherwise Close closes the files after this call
		o.giveUp()
		return port.ErrClosed
	}
	defer p.Core.Leave()
	filesOf(p.Core).submit(o)
	runtime.KeepAlive(p)
	return nil
}

// submit queues an operation. The port is open.
func (f *files) submit(o *Overlapped) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Jobs.Add(1)
	o.at.Store(atFile)
	f.waiting.push(o)
	if f.workers < maxWorkers {
		f.workers++
		go f.work()
	}
}

// next takes the next operation, which cannot be canceled any more. The worker ends if there is
// none.
func (f *files) next() *Overlapped {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.core.Port() == nil {
		f.drop()
	}
	o := f.waiting.first
	if o == nil {
		if f.workers--; f.workers == 0 {
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
	if o.kind == Read {
		n, err = o.file.ReadAt(o.Buf, o.off)
	} else {
		n, err = o.file.WriteAt(o.Buf, o.off)
	}
	o.N, o.Err = n, o.cause(port.NoSocket, err)
}

// done completes an operation, if its port still exists.
func (f *files) done(o *Overlapped) {
	p := f.core.Port()
	if p == nil || !f.core.Enter() {
		f.abandon(o)
		return
	}
	to := outlet{port: p}
	to.complete(o)
	p.Waiters.WakeOne(nil)
	f.core.Leave()
	f.core.Jobs.Add(-1)
}

// abandon ends an operation that never completes (O10).
func (f *files) abandon(o *Overlapped) {
	o.giveUp()
	f.core.Jobs.Add(-1)
}

// cancel cancels an operation that no worker has begun. False means that it is not queued any more.
func (f *files) cancel(p *port.Port, o *Overlapped) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.at.Load() != atFile || !o.On(f.core) {
		return false
	}
	f.waiting.remove(o)
	o.Err = &Error{Op: o.kind.String(), Handle: port.NoSocket, Kind: ErrCanceled}
	to := outlet{port: p}
	to.complete(o)
	p.Waiters.WakeOne(nil)
	f.core.Jobs.Add(-1)
	return true
}

// Close drops the operations that no worker has begun, and waits for the others. The port is
// closed.
func (f *files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	for f.workers > 0 {
		f.left.Wait()
	}
	return nil
}

func (f *files) drop() {
	for o := f.waiting.first; o != nil; o = f.waiting.first {
		f.waiting.remove(o)
		f.abandon(o)
	}
}
