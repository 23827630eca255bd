package contend

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

const (
	portAccepts = 64  // accepts that the port has under way
	portBatch   = 128 // notifications that a worker dequeues at a time

	oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot
)

// A portConn is a connection of the port by hand. It belongs to the worker that holds its notification.
type portConn struct {
	sock *sock.Socket
	held sock.Held // until it is closed
	rest []byte    // received, and not sent yet
}

// servePort is socknotify by hand: one port, and a worker for each core. Registrations are one-shot, and accepted
// connections arrive as notifications, whose key is nil.
func servePort(p Params, backend string, ready func(string)) error {
	port, err := socknotify.New[*portConn](socknotify.WithBackend(backend))
	if err != nil {
		return err
	}
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	if err := port.Accept(listener, nil, portAccepts); err != nil {
		return err
	}
	ready(listener.LocalAddr().String())
	var running sync.WaitGroup
	workers := max(p.Cores, 1)
	for range workers {
		w := &portWorker{port: port, shared: workers > 1, buf: make([]byte, 64<<10)}
		running.Go(w.run)
	}
	running.Wait()
	return errors.New("the workers ended")
}

// A portWorker is one of the goroutines that share a port.
type portWorker struct {
	port   *socknotify.Port[*portConn]
	shared bool // there are other workers
	buf    []byte
	regs   []socknotify.Registration[*portConn]
}

func (w *portWorker) run() {
	ready := make([]socknotify.Notification[*portConn], portBatch)
	for {
		n, err := w.port.Process(w.regs, ready, -1)
		w.check(err)
		if err != nil {
			return
		}
		for i := range ready[:n] {
			switch nt := &ready[i]; {
			case nt.Key == nil:
				w.accepted(nt.Accepted())
			case nt.Key.rest != nil:
				w.echo(nt.Key, nt.Key.rest)
			default:
				w.receive(nt.Key)
			}
			ready[i] = socknotify.Notification[*portConn]{} // an idle worker keeps no connection alive
		}
	}
}

func (w *portWorker) accepted(s *sock.Socket, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "accept:", err)
		return
	}
	if s == nil {
		return
	}
	s.SetNoDelay(true)
	held, err := s.Hold()
	if err != nil {
		return // not possible: only this worker has the socket
	}
	w.enable(&portConn{sock: s, held: held}, socknotify.EventIn)
}

// enable enables a connection again: with the next call that dequeues, or at once where there are other workers,
// which can then handle the next request while this one is busy. The socket is nearly always known to be drained,
// so this costs no system call.
func (w *portWorker) enable(c *portConn, filter socknotify.Events) {
	w.regs = append(w.regs, socknotify.Enable(c.sock, c, filter, oneShot))
	if w.shared {
		_, err := w.port.Process(w.regs, nil, 0)
		w.check(err)
	}
}

// check closes the connections that could not be enabled.
func (w *portWorker) check(err error) {
	for i := range w.regs {
		if r := &w.regs[i]; r.Result != nil {
			fmt.Fprintln(os.Stderr, "enable:", r.Result)
			w.close(r.Key)
		}
	}
	w.regs = w.regs[:0]
	if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
		fmt.Fprintln(os.Stderr, "process:", err)
	}
}

func (w *portWorker) receive(c *portConn) {
	switch n, err := c.held.Recv(w.buf); {
	case err == sock.ErrWouldBlock:
		w.enable(c, socknotify.EventIn)
	case err != nil:
		w.close(c)
	default:
		w.echo(c, w.buf[:n])
	}
}

// echo sends, and keeps the bytes that the system does not take. Until they are sent nothing more is received.
func (w *portWorker) echo(c *portConn, b []byte) {
	n, err := c.held.Send(b)
	switch {
	case err != nil && err != sock.ErrWouldBlock:
		w.close(c)
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

// close ends a connection. Its registration ends with the socket, and this worker holds its only notification.
func (w *portWorker) close(c *portConn) {
	c.sock.Close()
	c.held.Release()
}
