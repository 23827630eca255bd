package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A packetWorker is one of the goroutines that serve.
type packetWorker struct {
	server *PacketServer
	bufs   []byte
	in     [packets]sock.Message
	reg    [1]socknotify.Registration[*PacketConn]

	activity
}

// run serves until the port is closed, or the watchdog has replaced the worker. A worker whose handler has ended the
// goroutine (runtime.Goexit) is replaced as well.
func (w *packetWorker) run() {
	var ready [1]socknotify.Notification[*PacketConn] // one socket at a time, since each may have many datagrams
	var c *PacketConn
	var f failing
	s := w.server
	s.label()
	defer func() {
		if c != nil {
			w.rearm(c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.workers, w)
		w.mu.Lock()
		defer w.mu.Unlock()
		if c != nil && !w.replaced {
			s.addWorker()
		}
	}()
	for {
		if _, err := s.port.Process(nil, ready[:], -1); err == socknotify.ErrClosed {
			return
		} else if err != nil {
			if f.again(&s.journal, err, cmp.Or(s.giveUp, giveUpAfter)) {
				s.end(err)
			}
			continue
		}
		f = failing{}
		c = ready[0].Key
		ready[0] = socknotify.Notification[*PacketConn]{}
		w.mu.Lock()
		w.begin(s.wheel.Now())
		w.mu.Unlock()
		if err := w.serve(c); err != nil {
			c.failed.fail(err)
		} else {
			w.rearm(c)
		}
		c = nil
		w.mu.Lock()
		w.busy = false
		replaced := w.replaced
		w.mu.Unlock()
		if replaced {
			return
		}
	}
}

// rearm enables a socket. While the system refuses that, rearm tries again; the watchdog starts another worker for the
// other sockets.
func (w *packetWorker) rearm(c *PacketConn) {
	for f := (failing{}); ; {
		err := c.enable(&w.reg)
		if err == nil {
			return
		}
		if !refusedBySystem(err) || f.again(&w.server.journal, err, cmp.Or(w.server.giveUp, giveUpAfter)) {
			c.failed.fail(err)
			return
		}
	}
}

// serve receives a batch of datagrams and calls the handler. Datagrams that are left notify again.
func (w *packetWorker) serve(c *PacketConn) error {
	s := w.server
	w.resetBuffers()
	n, err := c.sock.RecvBatch(w.in[:])
	switch {
	case err == sock.ErrWouldBlock:
		return nil
	case errors.Is(err, net.ErrClosed):
		return err
	case err != nil:
		s.log(slog.LevelDebug, "socket error", "err", err) // of a datagram that was sent earlier
		return nil
	}
	s.counts.received.Add(uint64(n))
	w.call(c, n)
	return nil
}

// resetBuffers gives each message its buffer again, because handlers may have changed them.
func (w *packetWorker) resetBuffers() {
	size := w.server.limits.message
	if w.bufs == nil {
		w.bufs = make([]byte, packets*size)
	}
	for i := range w.in {
		w.in[i].Buf = w.bufs[i*size : (i+1)*size : (i+1)*size]
	}
}

func (w *packetWorker) call(c *PacketConn, n int) {
	s := w.server
	defer func() {
		if v := recover(); v != nil {
			s.panicked("handler panicked", v, nil)
		}
	}()
	for i := range w.in[:n] {
		w.in[i].Buf = w.in[i].Buf[:w.in[i].N]
	}
	s.Handler.Datagrams(c, w.in[:n])
}

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
		Panics: s.lines.Panics(), Stuck: k.stuck.Load(),
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
