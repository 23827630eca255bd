package server

import (
	"net"
	"sync/atomic"
	"time"
)

// counts are a server's counters.
type counts struct {
	accepted, refused, panics, stuck, idle, slow, stalled, overloads, failedHandshakes, badPreambles atomic.Uint64
	queued                                                                                           atomic.Int64
}

// Stats are the counts of a server. Each is exact, but they are not read at one instant.
type Stats struct {
	Conns            int           // connections now
	Workers          int           // worker goroutines now, including replaced ones that have not returned, and helpers of shards
	Queued           int64         // bytes queued now, for all connections
	Longest          time.Duration // age of the oldest handler call that is running, to about 0.1 s
	Accepted         uint64        // connections accepted, without Refused
	Refused          uint64        // connections beyond a limit
	Overloads        uint64        // writes refused because of MaxQueued
	Idle             uint64        // connections closed because of IdleTimeout
	Slow             uint64        // connections closed because of WriteTimeout
	Stalled          uint64        // connections closed because of MessageTimeout
	Panics           uint64        // handlers, and functions of TLSConfig, that panicked
	Stuck            uint64        // handlers that ran for StuckAfter
	FailedHandshakes uint64        // connections that ended before their TLS handshake was over
	BadPreambles     uint64        // connections that ended before Server.Preamble had accepted their header
}

func (s *server) Stats() Stats {
	k := &s.counts
	st := Stats{
		Queued: k.queued.Load(), Accepted: k.accepted.Load(), Refused: k.refused.Load(),
		Overloads: k.overloads.Load(), Idle: k.idle.Load(), Slow: k.slow.Load(), Stalled: k.stalled.Load(),
		Panics: k.panics.Load(), Stuck: k.stuck.Load(), FailedHandshakes: k.failedHandshakes.Load(),
		BadPreambles: k.badPreambles.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Conns, st.Workers = s.table.n, len(s.workers)
	if st.Workers > 0 {
		d := watchdog{now: uint32(s.wheel.Now())}
		for w := range s.workers {
			st.Longest = max(st.Longest, d.ran(&w.activity))
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
