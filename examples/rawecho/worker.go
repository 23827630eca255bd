package rawecho

import (
	"errors"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A worker is one of the goroutines that serve.
type worker struct {
	server   *server
	buf      []byte
	regs     []socknotify.Registration[*conn]
	messages int64
	bytes    int64
}

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

func (w *worker) run() {
	ready := make([]socknotify.Notification[*conn], enough)
	for {
		n, err := w.server.port.Process(w.regs, ready, -1)
		w.check(err)
		if err != nil {
			return
		}
		for i := range ready[:n] {
			switch nt := &ready[i]; {
			case nt.Key == nil:
				w.accepted(nt.Accepted())
			case nt.Key.rest != nil:
				w.send(nt.Key)
			default:
				w.receive(nt.Key)
			}
			ready[i] = socknotify.Notification[*conn]{} // an idle worker holds on to nobody
		}
	}
}

func (w *worker) accepted(s *sock.Socket, err error) {
	if err != nil {
		w.server.fail(err)
		return
	}
	if s == nil {
		return
	}
	s.SetNoDelay(true) // at worst it is slower
	held, err := s.Hold()
	if err != nil {
		return // nobody else knows it, so it cannot be
	}
	c := &conn{sock: s, held: held}
	w.server.opened(c)
	w.enable(c, socknotify.EventIn)
}

// enable has the connection notified again: with the next call that dequeues, or where there are other
// workers at once. A peer that answers while this one is busy is then somebody's work already, and nearly
// always the socket vouches for itself, which costs no system call.
func (w *worker) enable(c *conn, filter socknotify.Events) {
	w.regs = append(w.regs, socknotify.Enable(c.sock, c, filter, oneShot))
	if w.server.cfg.Workers > 1 {
		_, err := w.server.port.Process(w.regs, nil, 0)
		w.check(err)
	}
}

// check closes the connections that could not be enabled: they are still this worker's.
func (w *worker) check(err error) {
	for i := range w.regs {
		r := &w.regs[i]
		if r.Result != nil {
			w.server.fail(r.Result)
			w.server.close(r.Key)
		}
	}
	w.regs = w.regs[:0]
	if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
		w.server.fail(err)
	}
}

func (w *worker) receive(c *conn) {
	n, err := c.held.Recv(w.buf)
	switch {
	case err == sock.ErrWouldBlock:
		w.enable(c, socknotify.EventIn)
	case err != nil:
		w.server.close(c) // its end, or its failure
	default:
		w.messages++
		w.echo(c, w.buf[:n])
	}
}

// echo sends, and keeps what the system does not take. Nothing is received meanwhile, so a peer that sends
// and never receives holds up itself alone.
func (w *worker) echo(c *conn, b []byte) {
	n, err := c.held.Send(b)
	w.bytes += int64(n)
	switch {
	case err != nil && err != sock.ErrWouldBlock:
		w.server.close(c)
	case n == len(b):
		c.rest = nil
		w.enable(c, socknotify.EventIn)
	default:
		if c.rest == nil {
			b = append([]byte(nil), b...)
		}
		c.rest = b[n:]
		w.enable(c, socknotify.EventOut)
	}
}

func (w *worker) send(c *conn) { w.echo(c, c.rest) }
