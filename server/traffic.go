package server

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/durations"
)

// A traffic counts the bytes that a server has received and sent. A connection does not know the worker that calls its
// handler, so the counters are in stripes, and a goroutine finds one by the address of its stack: goroutines that run at
// the same time have different stacks, and so mostly use different cache lines. Two that meet in a stripe count right, but
// more slowly.
type traffic [stripes]struct {
	in, out atomic.Uint64
	_       [112]byte // processors fetch cache lines in pairs
}

const (
	stripeBits = 5
	stripes    = 1 << stripeBits
)

// stripe returns the index of the stripe of the calling goroutine. The factor is that of Fibonacci hashing, and stacks are
// multiples of 2 KiB apart.
func stripe() uint32 {
	var here byte
	return uint32(uintptr(unsafe.Pointer(&here))>>11) * 0x9E3779B1 >> (32 - stripeBits)
}

func (t *traffic) received(n int) {
	if n > 0 {
		t[stripe()].in.Add(uint64(n))
	}
}

func (t *traffic) sent(n int) {
	if n > 0 {
		t[stripe()].out.Add(uint64(n))
	}
}

func (t *traffic) sum() (in, out uint64) {
	for i := range t {
		in += t[i].in.Load()
		out += t[i].out.Load()
	}
	return in, out
}

// A tally counts a worker's calls of Data. Only the worker counts, without a lock.
type tally struct {
	fresh uint64             // calls since publish
	calls uint64             // calls before it, under activity.mu
	times durations.Recorder // if Server.TimeCalls is set
}

// publish lets others see what the worker has counted. activity.mu is held, as it is for each notification anyway.
func (t *tally) publish() {
	t.calls += t.fresh
	t.fresh = 0
}

// look returns what Stats reports of a worker.
func (w *worker) look(d *watchdog) (busy bool, ran time.Duration, waiting int, calls uint64) {
	busy, ran = d.ran(&w.activity)
	w.mu.Lock()
	defer w.mu.Unlock()
	if busy && w.busy {
		waiting = w.n - w.next
	}
	return busy, ran, waiting, w.calls
}

// keep adds the counts of a worker that ends. server.mu is held.
func (k *counts) keep(t *tally) {
	k.calls += t.calls + t.fresh
	t.times.AddTo(&k.callTime)
}

// callData calls Data. A call that panics or ends its goroutine is not timed.
func (w *worker) callData(c *conn) error {
	w.fresh++
	s := w.server
	if !s.TimeCalls {
		return s.handler.data(c, w.buf)
	}
	began := s.elapsed()
	err := s.handler.data(c, w.buf)
	w.times.Record(s.elapsed() - began)
	return err
}
