package socknotify

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
	port weak.Pointer[port]
	core *core
	work func() // made once, so that a goroutine starts without an allocation

	mu      sync.Mutex
	waiting opList
	workers int
	left    sync.Cond // the last worker has ended
	closed  bool
}

// maxWorkers is how many files are read or written at once: enough to keep a disk busy, while each of them
// may hold a thread.
const maxWorkers = 8

func newFiles(p weak.Pointer[port], c *core) *files {
	f := &files{port: p, core: c}
	f.left.L = &f.mu
	f.work = func() {
		for o := f.next(); o != nil; o = f.next() {
			o.transfer()
			f.done(o)
		}
	}
	return f
}

// startFile begins an operation on a file that has been claimed.
func (p *port) startFile(file *os.File, off int64, o *overlapped) error {
	o.file, o.off = file, off
	if !p.transfers.start(p, o) && !p.files.submit(o) {
		o.forget()
		o.end()
		return ErrClosed
	}
	runtime.KeepAlive(p)
	return nil
}

// submit queues an operation; false says that the port is closed.
func (f *files) submit(o *overlapped) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.core.jobs.Add(1)
	o.at.Store(atFile)
	f.waiting.push(o)
	if f.workers < maxWorkers {
		f.workers++
		go f.work()
	}
	return true
}

// next takes the next operation, which cannot be canceled any more. With nil the worker ends.
func (f *files) next() *overlapped {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.port.Value() == nil {
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

// transfer is the operation, or what the kernel has left of it.
func (o *overlapped) transfer() {
	var n int
	var err error
	if o.kind == opRead {
		n, err = o.file.ReadAt(o.buf[o.n:], o.off+int64(o.n))
	} else {
		n, err = o.file.WriteAt(o.buf[o.n:], o.off+int64(o.n))
	}
	o.n += n
	o.err = o.cause(noSocket, err)
}

// done completes an operation, if its port still exists.
func (f *files) done(o *overlapped) {
	p := f.port.Value()
	if p == nil || !f.core.stripes[0].enter(f.core) {
		f.abandon(o)
		return
	}
	to := outlet{p: p}
	to.complete(o)
	p.parking.wakeOne(p.core, nil)
	f.core.stripes[0].leave(f.core)
	f.core.jobs.Add(-1)
}

// abandon gives an operation back that never completes (O10).
func (f *files) abandon(o *overlapped) {
	o.forget()
	o.at.Store(0)
	o.end()
	f.core.jobs.Add(-1)
}

// cancel completes an operation that nobody has begun. false says that it is queued no longer.
func (f *files) cancel(p *port, o *overlapped) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.at.Load() != atFile || o.core.Load() != f.core {
		return false
	}
	f.waiting.remove(o)
	o.err = &OverlappedError{Op: o.kind.String(), Socket: noSocket, Kind: ErrCanceled}
	to := outlet{p: p}
	to.complete(o)
	p.parking.wakeOne(p.core, nil)
	f.core.jobs.Add(-1)
	return true
}

// close drops what nobody has begun, and waits for what somebody has.
func (f *files) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.drop()
	for f.workers > 0 {
		f.left.Wait()
	}
}

func (f *files) drop() {
	for o := f.waiting.first; o != nil; o = f.waiting.first {
		f.waiting.remove(o)
		f.abandon(o)
	}
}
