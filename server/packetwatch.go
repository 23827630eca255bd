package server

import "github.com/socknotify/socknotify/internal/wheel"

// A packetWatcher is what the wheel of a PacketServer has.
type packetWatcher struct {
	timer wheel.Timer[*packetWatcher]
}

// addWorker starts one more. The server's lock is held.
func (s *PacketServer) addWorker() {
	w := &packetWorker{server: s}
	w.cursor.Store(idle)
	s.workers[w] = struct{}{}
	s.running.Go(w.run)
}

// watch looks at the workers with every tick while there are sockets, or handlers that have not returned.
func (s *PacketServer) watch() {
	p := patrol{now: uint32(s.wheel.Now()), after: stuckAfter(s.StuckAfter)}
	defer p.tell(s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	on := len(s.conns) > 0
	for w := range s.workers {
		cur := w.cursor.Load()
		on = on || cur&idle == 0
		if p.sees(cur, &w.logged) && !s.closing && len(s.workers) < max(s.Workers, 1)+maxStuck && w.cursor.CompareAndSwap(cur, cur|replaced) {
			s.addWorker() // for the other sockets
		}
	}
	s.counts.stuck.Add(uint64(len(p.found)))
	if on {
		s.wheel.Set(&s.watcher, 0)
	}
}

// Stats returns the server's counts. It may be called at any time.
func (s *PacketServer) Stats() PacketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.counts
	st := PacketStats{
		Sockets: len(s.conns), Workers: len(s.workers), Received: k.received.Load(), Sent: k.sent.Load(), Dropped: k.dropped.Load(),
		Panics: k.panics.Load(), Stuck: k.stuck.Load(),
	}
	if st.Workers > 0 {
		p := patrol{now: uint32(s.wheel.Now())}
		for w := range s.workers {
			st.Longest = max(st.Longest, p.waited(w.cursor.Load()))
		}
	}
	return st
}
