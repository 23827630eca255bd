package echo

import (
	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A worker is one of the goroutines that serve.
type worker struct {
	server   *server
	buf      []byte
	regs     [1]socknotify.Registration[*conn]
	messages int64
	bytes    int64
}

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

func (w *worker) run() {
	ready := make([]socknotify.Notification[*conn], enough)
	for {
		n, err := w.server.port.Wait(ready, -1)
		if err != nil {
			w.server.fail(err)
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
	c := &conn{sock: s}
	w.server.opened(c)
	w.enable(c, socknotify.EventIn)
}

// enable has the connection notified again. At once, not with the next call that dequeues: a peer that
// answers while this worker is busy with others is then somebody else's work already. Nearly always the
// socket vouches for itself, and this costs no system call.
func (w *worker) enable(c *conn, filter socknotify.Events) {
	w.regs[0] = socknotify.EnableSock(c.sock, c, filter, oneShot)
	_, err := w.server.port.Process(w.regs[:], nil, 0)
	if err == nil {
		err = w.regs[0].Result
	}
	if err != nil {
		w.server.fail(err)
		w.server.close(c)
	}
}

func (w *worker) receive(c *conn) {
	n, err := c.sock.Recv(w.buf)
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
	n, err := c.sock.Send(b)
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
