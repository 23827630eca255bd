package server

import (
	"context"
	"runtime/pprof"
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
func (w *worker) look(d *watchdog) (busy bool, ran time.Duration, calls uint64) {
	ran = d.ran(&w.activity)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy, ran, w.calls
}

// keep adds the counts of a worker that ends. server.mu is held.
func (k *counts) keep(t *tally) {
	k.calls += t.calls + t.fresh
	t.times.AddTo(&k.callTime)
}

// callData calls Data.
func (w *worker) callData(c *conn) error {
	w.fresh++
	s := w.server
	if s.TimeCalls || s.Name != "" {
		return w.callMarked(c)
	}
	return s.handler.data(c, w.buf)
}

// callMarked is callData with labels and a clock. A call that panics or ends its goroutine is not timed.
func (w *worker) callMarked(c *conn) error {
	s := w.server
	s.labels.beginCall()
	began := time.Time{}
	if s.TimeCalls {
		began = time.Now()
	}
	err := s.handler.data(c, w.buf)
	if s.TimeCalls {
		w.times.Record(time.Since(began))
	}
	s.labels.begin()
	return err
}

// labels are the labels of a server's goroutines in profiles, nil without Server.Name.
type labels struct{ all, calls context.Context }

func newLabels(name string) (l labels) {
	if name != "" {
		l.all = pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", name))
		l.calls = pprof.WithLabels(l.all, pprof.Labels("socknotify_call", "data"))
	}
	return l
}

// begin labels the calling goroutine.
func (l *labels) begin() {
	if l.all != nil {
		pprof.SetGoroutineLabels(l.all)
	}
}

// beginCall labels the calling goroutine for a call of Data.
func (l *labels) beginCall() {
	if l.calls != nil {
		pprof.SetGoroutineLabels(l.calls)
	}
}
