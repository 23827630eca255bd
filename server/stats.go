package server

import (
	"net"
	"sync/atomic"
	"time"

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
		Overloads: k.overloads.Load(), Panics: s.panics.Load(), Stuck: k.stuck.Load(),
		Handshakes: k.handshakes.Load(), EvictedHandshakes: k.evictedHandshakes.Load(),
	}
	st.Refused = k.refused.Load() + st.RefusedPerAddr
	st.Rejected = k.rejectedHandshakes.Load() + st.RejectedHeaders
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns, st.Workers = s.table.n, len(s.workers)
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

func (c *conn) LocalAddr() net.Addr { return c.address(true) }

func (c *conn) RemoteAddr() net.Addr { return c.address(false) }

func (c *conn) address(local bool) net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.extra; x != nil && x.pre != nil {
		a := x.pre.Remote
		if local {
			a = x.pre.Local
		}
		if a != nil {
			return a
		}
	}
	if c.word.Load()&wDetached != 0 {
		nc := c.extra.hijacked.nc
		if local {
			return nc.LocalAddr()
		}
		return nc.RemoteAddr()
	}
	if !c.listener.tcp {
		a := &net.UnixAddr{Net: "unix"}
		if local {
			a.Name = c.socket().LocalPath()
		}
		return a
	}
	a := c.socket().RemoteAddr()
	if local {
		a = c.socket().LocalAddr()
	}
	if !a.IsValid() {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}
