package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net"

	"github.com/socknotify/socknotify"
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
			if s.failed(&f, err) {
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
			c.fail(err)
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
		if !refusedBySystem(err) || w.server.failed(&f, err) {
			c.fail(err)
			return
		}
	}
}

// failed handles a call that failed on an open port. It pauses, and reports whether to give up.
func (s *PacketServer) failed(f *failing, err error) bool {
	if s.failures.now() {
		s.log(slog.LevelWarn, "cannot wait for datagrams, trying again", "err", err)
	}
	return f.again(cmp.Or(s.giveUp, giveUpAfter))
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
		s.logLimited(&s.datagrams, slog.LevelDebug, "socket error", "err", err) // of a datagram that was sent earlier
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
			s.panicked(nil, "handler panicked", v, nil)
		}
	}()
	for i := range w.in[:n] {
		w.in[i].Buf = w.in[i].Buf[:w.in[i].N]
	}
	s.Handler.Datagrams(c, w.in[:n])
}
