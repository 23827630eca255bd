package server

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/metrics"
)

// counts are a server's counters. Each event is counted in one of them, and sums are made by Stats, so that no difference
// of two counters is needed, which could decrease while both increase.
type counts struct {
	accepted, refused, refusedPerAddr, stuck, overloads atomic.Uint64
	idle, slow, stalled, lateHandshakes                 atomic.Uint64 // timeouts
	handshakes, rejectedHandshakes, rejectedHeaders     atomic.Uint64
	evictedHandshakes                                   atomic.Uint64
	queued, handshaking, hijacked                       atomic.Int64

	// Of workers that have ended, under server.mu.
	calls    uint64
	callTime metrics.Histogram
}

// Stats are the counts of a server. Each is exact, but they are not read at one instant. The bytes are those that the
// server has moved: with TLS the encrypted ones, and not those that a net.Conn of Hijack has.
type Stats struct {
	Conns       int // connections now
	Handshaking int // of these, those whose TLS handshake is not complete
	Hijacked    int // of these, those whose socket a net.Conn of Hijack has

	Workers     int           // worker goroutines now, including replaced ones that have not returned, and helpers of shards
	Running     int           // of these, those that are not waiting, most of them in the call of a handler
	Waiting     int           // notifications that a worker has dequeued and will handle after its present call
	QueuedBytes int64         // bytes queued now, for all connections
	Longest     time.Duration // age of the oldest handler call that is running, to about 0.1 s

	Accepted uint64 // connections accepted, without Refused
	Refused  uint64 // connections beyond a limit
	// RefusedPerAddr is the part of Refused beyond MaxConnsPerAddr.
	RefusedPerAddr uint64
	// Rejected counts connections that ended before the handler knew them, because of what the peer sent or because it
	// left, and RejectedHeaders the part of them whose header (see Server.Preamble) was not complete.
	Rejected, RejectedHeaders uint64
	TimedOut                  metrics.TimedOut // connections closed because of a timeout
	Overloads                 uint64           // writes refused because of MaxQueuedTotal

	BytesIn  uint64            // bytes received
	BytesOut uint64            // bytes sent
	Calls    uint64            // calls of Data that have ended
	CallTime metrics.Histogram // how long those that returned took, if TimeCalls is set

	Panics uint64 // handlers, and other functions of the user, that panicked
	Stuck  uint64 // handlers that ran for StuckAfter

	Handshakes        uint64 // TLS handshakes completed
	EvictedHandshakes uint64 // connections closed during their TLS handshake because of MaxHandshakes
}

func (s *server) Stats() Stats {
	k := &s.counts
	st := Stats{
		Handshaking: int(k.handshaking.Load()), Hijacked: int(k.hijacked.Load()),
		QueuedBytes: k.queued.Load(), Accepted: k.accepted.Load(),
		RefusedPerAddr: k.refusedPerAddr.Load(), RejectedHeaders: k.rejectedHeaders.Load(),
		TimedOut: metrics.TimedOut{Idle: k.idle.Load(), Slow: k.slow.Load(),
			Message: k.stalled.Load(), Handshake: k.lateHandshakes.Load()},
		Overloads: k.overloads.Load(), Panics: s.lines.Panics(), Stuck: k.stuck.Load(),
		Handshakes: k.handshakes.Load(), EvictedHandshakes: k.evictedHandshakes.Load(),
	}
	st.Refused = k.refused.Load() + st.RefusedPerAddr
	st.Rejected = k.rejectedHandshakes.Load() + st.RejectedHeaders
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns, st.Workers = len(s.table), len(s.workers)
	st.Calls, st.CallTime = k.calls, k.callTime
	if s.traffic != nil {
		st.BytesIn, st.BytesOut = s.traffic.sum()
	}
	if st.Workers > 0 {
		d := watchdog{now: uint32(s.wheel.Now())}
		for w := range s.workers {
			busy, ran, waiting, calls := w.look(&d)
			st.Waiting += waiting
			st.Longest = max(st.Longest, ran)
			st.Calls += calls
			if busy {
				st.Running++
			}
			w.times.AddTo(&st.CallTime)
		}
	}
	return st
}

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
	fresh uint64           // calls since publish
	calls uint64           // calls before it, under activity.mu
	times metrics.Recorder // if Server.TimeCalls is set
}

// publish lets others see what the worker has counted. activity.mu is held, as it is for each notification anyway.
func (t *tally) publish() {
	t.calls += t.fresh
	t.fresh = 0
}

// look returns what Stats reports of a worker.
func (w *worker) look(d *watchdog) (busy bool, ran time.Duration, waiting int, calls uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		waiting = w.n - w.next
	}
	return w.busy, time.Duration(d.ticks(&w.activity)) * tick, waiting, w.calls
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
