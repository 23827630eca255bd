package ring

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

const (
	// leastExchanges is how many receives and sends cost less in a ring than by a system call each.
	leastExchanges = 4
	// maxExchanges is how many are submitted at once at most.
	maxExchanges = 128
	// maxRings is how many goroutines can make exchanges at once. Others make their calls themselves.
	maxRings = 8
)

// exchanges are rings for receives and sends, each of which one goroutine has at a time. They are made when they
// are needed.
type exchanges struct {
	made atomic.Int32
	free chan *ring // none but these exist outside an Exchange
}

// take returns a ring, or nil where there is none to be had.
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

// Exchange implements backend.Batcher. With MSG_DONTWAIT the kernel makes a call as it takes its submission, and
// completes it there and then, be it with EAGAIN: it arms no poll and leaves nothing to a thread.
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

// exchange makes as many calls as the kernel takes, and tells whether it took all.
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
