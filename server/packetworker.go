package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// A packetWorker is one of the goroutines that serve.
type packetWorker struct {
	server *PacketServer
	bufs   []byte
	in     [packets]sock.Message
	reg    [1]socknotify.Registration[*PacketConn]

	engine.Activity
}

// run serves until the port is closed, or the watchdog has replaced the worker. A worker whose
// handler has ended the goroutine (runtime.Goexit) is replaced as well.
func (w *packetWorker) run() {
	// One socket at a time, since each may have many datagrams.
	var ready [1]socknotify.Notification[*PacketConn]
	var c *PacketConn
	var f engine.Failing
	s := w.server
	s.journal.Label()
	defer func() {
		if c != nil {
			w.rearm(c)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.workers, w)
		w.Mu.Lock()
		defer w.Mu.Unlock()
		if c != nil && !w.Replaced {
			s.addWorker()
		}
	}()
	for {
		if _, err := s.port.Process(nil, ready[:], -1); err == socknotify.ErrClosed {
			return
		} else if err != nil {
			if f.Again(&s.journal, engine.CannotWait, err) >= cmp.Or(s.giveUp, engine.GiveUpAfter) {
				s.end(err)
			}
			continue
		}
		f = engine.Failing{}
		c = ready[0].Key
		ready[0] = socknotify.Notification[*PacketConn]{}
		w.Mu.Lock()
		w.Begin(s.wheel.Now())
		w.Mu.Unlock()
		if err := w.serve(c); err != nil {
			c.failed.Fail(err)
		} else {
			w.rearm(c)
		}
		c = nil
		w.Mu.Lock()
		w.Busy = false
		replaced := w.Replaced
		w.Mu.Unlock()
		if replaced {
			return
		}
	}
}

// rearm enables a socket. While the system refuses that, rearm tries again; the watchdog starts
// another worker for the other sockets.
func (w *packetWorker) rearm(c *PacketConn) {
	for f := (engine.Failing{}); ; {
		err := c.enable(&w.reg)
		if err == nil {
			return
		}
		if s := w.server; !engine.RefusedBySystem(err) ||
			f.Again(&s.journal, engine.CannotWait, err) >= cmp.Or(s.giveUp, engine.GiveUpAfter) {
			c.failed.Fail(err)
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
		s.journal.Log(slog.LevelDebug, "socket error", "err", err) // of a datagram that was sent earlier
		return nil
	}
	s.counts.received.Add(uint64(n))
	w.call(c, n)
	return nil
}

// resetBuffers gives each message its buffer again, because handlers may have changed them.
func (w *packetWorker) resetBuffers() {
	size := cmp.Or(w.server.MaxMessage, maxDatagram)
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
			s.journal.Panicked("handler panicked", v, nil)
		}
	}()
	for i := range w.in[:n] {
		w.in[i].Buf = w.in[i].Buf[:w.in[i].N]
	}
	s.Handler.Datagrams(c, w.in[:n])
}

// addWorker starts one more worker. The server's lock is held.
func (s *PacketServer) addWorker() {
	w := &packetWorker{server: s}
	s.workers[w] = struct{}{}
	s.running.Go(w.run)
}

// watch is the watchdog. The wheel calls it with every tick while there are sockets, or handlers
// that run.
func (s *PacketServer) watch() {
	d := engine.Watchdog{Now: uint32(s.wheel.Now()), After: engine.Timeout(s.StuckAfter)}
	defer d.Log(&s.journal)
	s.mu.Lock()
	defer s.mu.Unlock()
	on := len(s.conns) > 0
	for w := range s.workers {
		w.Mu.Lock()
		on = on || w.Busy
		if d.Late(&w.Activity) && !s.closing && len(s.workers) < s.maxRunning() {
			w.Replaced = true
			s.addWorker() // for the other sockets
		}
		w.Mu.Unlock()
	}
	s.counts.stuck.Add(uint64(d.Stuck()))
	if on {
		s.wheel.Set(s, 0)
	}
}

// Stats returns the server's counts. It may be called at any time.
func (s *PacketServer) Stats() PacketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.counts
	st := PacketStats{
		Conns: len(s.conns), Workers: len(s.workers),
		Received: k.received.Load(), Sent: k.sent.Load(), Dropped: k.dropped.Load(),
		Panics: s.journal.Lines.Panics(), Stuck: k.stuck.Load(),
	}
	if st.Workers > 0 {
		d := engine.Watchdog{Now: uint32(s.wheel.Now())}
		for w := range s.workers {
			w.Mu.Lock()
			st.Longest = max(st.Longest, d.Ran(&w.Activity))
			if w.Busy {
				st.Running++
			}
			w.Mu.Unlock()
		}
	}
	return st
}
