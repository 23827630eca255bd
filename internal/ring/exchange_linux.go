package ring

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

const (
	// leastExchanges is the number of receives and sends from which a ring costs less than a system call each.
	leastExchanges = 4
	// maxExchanges limits the calls of one submission.
	maxExchanges = 128
	// maxRings limits the goroutines that use a ring at once. Others make the system calls themselves.
	maxRings = 8
)

// exchanges holds the rings for receives and sends. Each is used by one goroutine at a time. They are opened on
// demand.
type exchanges struct {
	made atomic.Int32
	free chan *ring // the rings that no Exchange is using
}

// take returns a ring, or nil if none is free and no more can be opened.
func (t *exchanges) take() *ring {
	select {
	case r := <-t.free:
		return r
	default:
	}
	if t.made.Add(1) <= maxRings {
		r := new(ring)
		if r.open(maxExchanges) == nil {
			return r
		}
	}
	t.made.Add(-1)
	return nil
}

func (t *exchanges) close() error {
	var err error
	for {
		select {
		case r := <-t.free:
			if e := r.close(); e != nil && err == nil {
				err = e
			}
		default:
			return err
		}
	}
}

// Least implements backend.Batcher.
func (p *Poller) Least() int {
	if p.always {
		return 1
	}
	return leastExchanges
}

// Exchange implements backend.Batcher. With MSG_DONTWAIT the kernel makes each call while it takes the submission, and
// completes it at once, also if the result is EAGAIN. It arms no poll and passes no call to a thread.
func (p *Poller) Exchange(calls []backend.Exchange) {
	r := p.exchanges.take()
	if r == nil {
		return
	}
	for len(calls) > 0 {
		n := min(len(calls), maxExchanges)
		if !r.exchange(calls[:n]) {
			break // the kernel takes no submissions now
		}
		calls = calls[n:]
	}
	p.exchanges.free <- r
}

// exchange makes as many calls as the kernel takes, and reports whether it took all.
func (r *ring) exchange(calls []backend.Exchange) bool {
	for i := range calls {
		c := &calls[i]
		e := r.next()
		*e = sqe{
			op: opRecv, fd: int32(c.Handle), addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(c.Buf)))),
			len: uint32(len(c.Buf)), opFlags: unix.MSG_DONTWAIT, data: uint64(i),
		}
		if c.Send {
			e.op, e.opFlags = opSend, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL
		}
	}
	taken := r.submit()
	runtime.KeepAlive(calls) // the submissions point to their buffers
	for left := taken; left > 0; {
		head, n := r.completed()
		if n == 0 {
			r.await(left)
			continue
		}
		for at := head; at != head+uint32(n); at++ {
			answer := r.completion(at)
			c := &calls[answer.data]
			c.Made = true
			if c.N = int(answer.res); c.N < 0 {
				c.N, c.Err = 0, unix.Errno(-answer.res)
			}
		}
		r.release(head, n)
		left -= n
	}
	return taken == len(calls)
}
