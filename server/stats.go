package server

import (
	"time"

	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/server/internal/engine"
)

// Stats are the counts of a server. Each is exact, but they are not read at one instant. The bytes
// are those that the server has moved: with TLS the encrypted ones, and not those that a net.Conn
// of Hijack has.
type Stats struct {
	Conns       int // connections now
	Handshaking int // of these, those whose TLS handshake is not complete
	Hijacked    int // of these, those whose socket a net.Conn of Hijack has

	Workers     int           // worker goroutines now, with replaced ones and helpers of shards
	Running     int           // of these, those that do not wait, most in the call of a handler
	Waiting     int           // notifications that a worker will handle after its present call
	QueuedBytes int64         // bytes queued now, for all connections
	Longest     time.Duration // age of the oldest handler call that is running, to about 0.1 s

	Accepted uint64 // connections accepted, without Refused
	Refused  uint64 // connections beyond a limit
	// RefusedPerAddr is the part of Refused beyond MaxConnsPerAddr.
	RefusedPerAddr uint64
	// Rejected counts connections that ended before the handler knew them, because of what the peer
	// sent or because it left, and RejectedHeaders the part of them whose header (see
	// Server.Preamble) was not complete.
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
	// CryptoTLS counts TLS connections that crypto/tls keeps after the handshake, because of their
	// version or cipher suite or because a session of TLS 1.2 was resumed. It does not count those
	// that it keeps because of the field CryptoTLS.
	CryptoTLS uint64
}

func (s *server) Stats() Stats {
	k := &s.Counts
	st := Stats{
		Handshaking: int(k.Handshaking.Load()), Hijacked: int(k.Hijacked.Load()),
		QueuedBytes: k.Queued.Load(), Accepted: k.Accepted.Load(),
		RefusedPerAddr: k.RefusedPerAddr.Load(), RejectedHeaders: k.RejectedHeaders.Load(),
		TimedOut: metrics.TimedOut{Idle: k.Idle.Load(), Slow: k.Slow.Load(),
			Message: k.Stalled.Load(), Handshake: k.LateHandshakes.Load()},
		Overloads: k.Overloads.Load(), Panics: s.Lines.Panics(), Stuck: k.Stuck.Load(),
		Handshakes: k.Handshakes.Load(), EvictedHandshakes: k.EvictedHandshakes.Load(),
		CryptoTLS: k.CryptoTLS.Load(),
	}
	st.Refused = k.Refused.Load() + st.RefusedPerAddr
	st.Rejected = k.RejectedHandshakes.Load() + st.RejectedHeaders
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns, st.Workers = len(s.table), len(s.workers)
	st.Calls, st.CallTime = s.ended.calls, s.ended.callTime
	st.BytesIn, st.BytesOut = s.Traffic()
	if st.Workers > 0 {
		d := engine.Watchdog{Now: uint32(s.Wheel.Now())}
		for w := range s.workers {
			w.addTo(&st, &d)
		}
	}
	return st
}

// addTo adds what Stats reports of a worker.
func (w *worker) addTo(st *Stats, d *engine.Watchdog) {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	st.Calls += w.calls
	st.Longest = max(st.Longest, d.Ran(&w.Activity))
	if w.Busy {
		st.Running++
		st.Waiting += w.n - w.next
	}
	w.owner.Times.AddTo(&st.CallTime)
}

// An ended has the counts of workers that have ended. They are under the server's lock.
type ended struct {
	calls    uint64
	callTime metrics.Histogram
}

func (e *ended) add(w *worker) {
	e.calls += w.calls + w.owner.Calls
	w.owner.Times.AddTo(&e.callTime)
}
