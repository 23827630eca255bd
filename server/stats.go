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
	accepted, refused, refusedPerAddr, panics, stuck, idle, slow, stalled, overloads atomic.Uint64
	handshakes, failedHandshakes, lateHandshakes, evictedHandshakes, badPreambles    atomic.Uint64
	queued, handshaking, hijacked                                                    atomic.Int64

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

	Workers  int           // worker goroutines now, including replaced ones that have not returned, and helpers of shards
	Running  int           // of these, those that are not waiting, most of them in the call of a handler
	Queued   int64         // bytes queued now, for all connections
	Longest  time.Duration // age of the oldest handler call that is running, to about 0.1 s
	Accepted uint64        // connections accepted, without Refused

	Refused        uint64 // connections beyond a limit
	RefusedPerAddr uint64 // of these, those beyond MaxConnsPerAddr
	Overloads      uint64 // writes refused because of MaxQueued

	BytesIn  uint64            // bytes received
	BytesOut uint64            // bytes sent
	Calls    uint64            // calls of Data that have ended
	CallTime metrics.Histogram // how long those that returned took, if TimeCalls is set

	Idle    uint64 // connections closed because of IdleTimeout
	Slow    uint64 // connections closed because of WriteTimeout
	Stalled uint64 // connections closed because of MessageTimeout
	Panics  uint64 // handlers, and functions of TLSConfig, that panicked
	Stuck   uint64 // handlers that ran for StuckAfter

	Handshakes        uint64 // TLS handshakes completed
	FailedHandshakes  uint64 // connections that ended before their TLS handshake was over
	LateHandshakes    uint64 // of these, those closed because of HandshakeTimeout
	EvictedHandshakes uint64 // of these, those closed because of MaxHandshakes

	BadPreambles uint64 // connections that ended before Server.Preamble had accepted their header
}

func (s *server) Stats() Stats {
	k := &s.counts
	st := Stats{
		Handshaking: int(k.handshaking.Load()), Hijacked: int(k.hijacked.Load()),
		Queued: k.queued.Load(), Accepted: k.accepted.Load(), RefusedPerAddr: k.refusedPerAddr.Load(),
		Overloads: k.overloads.Load(), Idle: k.idle.Load(), Slow: k.slow.Load(), Stalled: k.stalled.Load(),
		Panics: k.panics.Load(), Stuck: k.stuck.Load(),
		Handshakes: k.handshakes.Load(), LateHandshakes: k.lateHandshakes.Load(), EvictedHandshakes: k.evictedHandshakes.Load(),
		BadPreambles: k.badPreambles.Load(),
	}
	st.Refused = k.refused.Load() + st.RefusedPerAddr
	st.FailedHandshakes = k.failedHandshakes.Load() + st.LateHandshakes + st.EvictedHandshakes
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
			busy, ran, calls := w.look(&d)
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
