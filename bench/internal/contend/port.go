package contend

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	snserver "github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// This file has the contenders of socknotify.

const (
	portAccepts = 64  // accepts that the port has under way
	portBatch   = 128 // notifications that a worker dequeues at a time

	oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot
)

// accepting returns a port on which accepted connections arrive as notifications with a zero key.
func accepting[K comparable](backend string, ready func(string)) (*socknotify.Port[K], error) {
	port, err := socknotify.New[K](socknotify.WithBackend(backend))
	if err != nil {
		return nil, err
	}
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return nil, err
	}
	if err := port.Accept(listener, *new(K), portAccepts); err != nil {
		return nil, err
	}
	ready(listener.LocalAddr().String())
	return port, nil
}

// A portConn is a connection of the port by hand. It belongs to the worker that holds its notification.
type portConn struct {
	sock *sock.Socket
	held sock.Held // until it is closed
	rest []byte    // received, and not sent yet
}

// servePort is socknotify by hand: one port, and a worker for each core. Registrations are one-shot, and accepted
// connections arrive as notifications, whose key is nil.
func servePort(p Params, backend string, ready func(string)) error {
	port, err := accepting[*portConn](backend, ready)
	if err != nil {
		return err
	}
	return onCores(p.Cores, func(int) error {
		w := &portWorker{port: port, shared: p.Cores > 1, buf: make([]byte, 64<<10)}
		return w.run()
	})
}

// A portWorker is one of the goroutines that share a port.
type portWorker struct {
	port   *socknotify.Port[*portConn]
	shared bool // there are other workers
	buf    []byte
	regs   []socknotify.Registration[*portConn]
}

func (w *portWorker) run() error {
	ready := make([]socknotify.Notification[*portConn], portBatch)
	for {
		n, err := w.process(ready, -1)
		if err != nil {
			return err
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
		w.process(nil, 0) // if it fails, so does the next call that dequeues
	}
}

// process calls Process, and closes the connections that could not be enabled.
func (w *portWorker) process(
	ready []socknotify.Notification[*portConn], timeout time.Duration,
) (int, error) {
	n, err := w.port.Process(w.regs, ready, timeout)
	for i := range w.regs {
		if r := &w.regs[i]; r.Result != nil {
			fmt.Fprintln(os.Stderr, "enable:", r.Result)
			w.close(r.Key)
		}
	}
	w.regs = w.regs[:0]
	return n, err
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

// An opConn is a connection with one operation in flight: a receive, or the send of the received bytes.
type opConn struct {
	sock *sock.Socket
	op   overlapped.Op[*opConn]
	buf  []byte // the bytes being sent
}

// serveOverlapped is a server on overlapped operations: a worker for each core on one port.
func serveOverlapped(p Params, backend string, ready func(string)) error {
	port, err := accepting[*opConn](backend, ready)
	if err != nil {
		return err
	}
	pool := overlapped.NewBuffers(4096)
	return onCores(p.Cores, func(int) error { return overlappedWorker(port, pool) })
}

// overlappedWorker starts the next operations in the call that dequeues. Receives that wait have no buffer.
func overlappedWorker(port *socknotify.Port[*opConn], pool *overlapped.Buffers) error {
	out := make([]socknotify.Notification[*opConn], 256)
	ops, of := make([]overlapped.Request[*opConn], 0, len(out)), make([]*opConn, 0, len(out))
	for {
		n, err := overlapped.Process(port, ops, out, -1)
		for i := range ops {
			if ops[i].Result != nil {
				of[i].sock.Close()
			}
		}
		if err != nil {
			return err
		}
		ops, of = ops[:0], of[:0]
		for i := range out[:n] {
			c, err := opened(&out[i])
			if err != nil {
				return err
			}
			if _, err := c.op.Result(); err != nil {
				c.sock.Close()
				continue
			}
			ops, of = append(ops, c.next(pool)), append(of, c)
		}
	}
}

// opened returns the connection of a completion. For an accept it is a new one.
func opened(nt *socknotify.Notification[*opConn]) (*opConn, error) {
	if nt.Key != nil {
		return nt.Key, nil
	}
	s, err := nt.Accepted()
	if err != nil {
		return nil, err
	}
	s.SetNoDelay(true)
	return &opConn{sock: s}, nil
}

// next returns the operation that follows the completed one. On a new connection it is a receive.
func (c *opConn) next(pool *overlapped.Buffers) overlapped.Request[*opConn] {
	if got := c.op.Buffer(); c.buf == nil && got != nil {
		c.buf = got
		return overlapped.SendRequest(c.sock, c, c.buf, &c.op)
	}
	pool.Put(c.buf)
	c.buf = nil
	return overlapped.RecvPooledRequest(c.sock, c, pool, &c.op)
}

// echoed is a handler of package server without state.
type echoed struct{}

func (*echoed) Open(*snserver.Conn[struct{}]) error   { return nil }
func (*echoed) Close(*snserver.Conn[struct{}], error) {}

func (*echoed) Data(c *snserver.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	_, err = c.Write(buf[:n])
	return err
}

// serveServer is package server: a worker with a port for each core.
func serveServer(p Params, backend string, ready func(string)) error {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	ready(l.LocalAddr().String())
	s := &snserver.Server[struct{}]{Handler: new(echoed), Workers: p.Cores, Backend: backend}
	return s.ServeSocket(l)
}

// A portMode says how sockets are registered with a port.
type portMode struct {
	name    string
	trigger socknotify.Trigger
	drained bool
}

var portModes = []portMode{
	{name: "oneshot+drained", trigger: oneShot, drained: true},
	{name: "oneshot", trigger: oneShot},
	{name: "level", trigger: socknotify.TriggerLevel},
	{name: "edge", trigger: socknotify.TriggerEdge},
}

// portCore is the event core on a port, with one or more waiters.
func portCore(backend string, m portMode) run {
	return core(true, func(p Params, t *tokens) (Outcome, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return Outcome{}, err
		}
		defer port.Close()
		err = t.each(func(fd, k int) error {
			regs := []socknotify.Registration[int]{m.enable(fd, k)}
			_, err := port.Process(regs, nil, 0)
			return errors.Join(err, regs[0].Result)
		})
		if err != nil {
			return Outcome{}, err
		}
		t.begin()

		counts := make([]count, p.Waiters)
		failed := make(chan error, len(counts))
		var running sync.WaitGroup
		w := startWatch()
		for i := range counts {
			running.Go(func() { failed <- portWaiter(port, t, m, p.Batch, &counts[i]) })
		}
		select {
		case err = <-failed:
		case <-time.After(p.Duration()):
		}
		ops := int64(0)
		for i := range counts {
			ops += counts[i].Load()
		}
		o := w.stop(ops)
		port.Close() // the waiters return
		running.Wait()
		t.drain()
		o.BaseAfter = t.base(p.Waiters, p.Batch)
		for len(failed) > 0 {
			err = errors.Join(err, <-failed)
		}
		return o, err
	})
}

// enable returns a registration that enables a socket.
func (m portMode) enable(fd, k int) socknotify.Registration[int] {
	return socknotify.Registration[int]{
		Handle: uintptr(fd), Key: k, Filter: socknotify.EventIn,
		Op: socknotify.OpEnable, Trigger: m.trigger,
	}
}

// A count is the count of one waiter, on a separate cache line.
type count struct {
	atomic.Int64
	_ [120]byte
}

// portWaiter handles notifications until the port is closed. One-shot registrations are enabled in the
// call that dequeues, as the package recommends.
func portWaiter(port *socknotify.Port[int], t *tokens, m portMode, batch int, ops *count) error {
	var buf [8]byte
	out := make([]socknotify.Notification[int], batch)
	regs := make([]socknotify.Registration[int], 0, batch)
	for {
		n, err := port.Process(regs, out, -1)
		if errors.Is(err, socknotify.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range regs {
			if regs[i].Result != nil {
				return regs[i].Result
			}
		}
		regs = regs[:0]
		done := int64(0)
		for i := range out[:n] {
			k := out[i].Key
			done += t.pass(k, &buf)
			if m.trigger == oneShot {
				r := m.enable(t.out[t.at(k)], k)
				r.Drained = m.drained
				regs = append(regs, r)
			}
		}
		ops.Store(ops.Load() + done) // only this goroutine writes it
	}
}
