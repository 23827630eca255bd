package server

import "github.com/socknotify/socknotify/internal/wheel"

// A packetTimer is the entry of a PacketServer in its wheel.
type packetTimer struct {
	timer wheel.Timer[*packetTimer]
}

// addWorker starts one more worker. The server's lock is held.
func (s *PacketServer) addWorker() {
	w := &packetWorker{server: s}
	s.workers[w] = struct{}{}
	s.running.Go(w.run)
}

// watch is the watchdog. The wheel calls it with every tick while there are sockets, or handlers that run.
func (s *PacketServer) watch() {
	d := watchdog{now: uint32(s.wheel.Now()), after: s.limits.stuck}
	defer d.log(s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	on := len(s.conns) > 0
	for w := range s.workers {
		w.mu.Lock()
		on = on || w.busy
		if d.late(&w.activity) && !s.closing && len(s.workers) < s.limits.running {
			w.replaced = true
			s.addWorker() // for the other sockets
		}
		w.mu.Unlock()
	}
	s.counts.stuck.Add(uint64(len(d.found)))
	if on {
		s.wheel.Set(&s.ticker, 0)
	}
}

// Stats returns the server's counts. It may be called at any time.
func (s *PacketServer) Stats() PacketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.counts
	st := PacketStats{
		Conns: len(s.conns), Workers: len(s.workers), Received: k.received.Load(), Sent: k.sent.Load(), Dropped: k.dropped.Load(),
		Panics: s.panics.Load(), Stuck: k.stuck.Load(),
	}
	if st.Workers > 0 {
		d := watchdog{now: uint32(s.wheel.Now())}
		for w := range s.workers {
			busy, ran := d.ran(&w.activity)
			st.Longest = max(st.Longest, ran)
			if busy {
				st.Running++
			}
		}
	}
	return st
}
