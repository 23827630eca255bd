// Package multithreaded is the third example: a TCP server on one port with many workers.
//
// A listener and all its connections are registered with one port, on which every worker waits. So
// a notification goes to a free worker. Registrations of connections are level-triggered and
// one-shot: a notification disables its registration. So the state of a connection belongs to the
// worker that holds its notification, without a lock. The worker receives one chunk, and enables
// the registration again in the call with which it dequeues its next notifications. If there is
// more to receive, that call or the call of another worker returns at once.
//
// A connection ends with OpRemove. Its EventRemove is the last notification, and the worker that
// dequeues it frees the connection. The worker that frees the last connection posts an exit
// message, and every worker that receives it posts it again and returns.
package multithreaded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/sock"
)

// Config has the numbers of workers, clients and messages.
type Config struct {
	Backend  string // empty: the default
	Workers  int
	Clients  int
	Messages int // per client
}

// DefaultWorkers and DefaultClients oversubscribe small machines on purpose.
const (
	DefaultWorkers = 16
	DefaultClients = 100
)

// Result is what the server counted. It wants one removal per client.
type Result struct {
	client.Result
	PerWorker []int // notifications
}

// A key is the connection that a notification is for. The accepts of the listener and the exit
// message, which are of kinds of their own, have nil.
type key = *connection

// A connection belongs to the worker that holds its notification.
type connection struct{ socket *sock.Socket }

func enableConnection(c *connection) socknotify.Registration[key] {
	return socknotify.Enable(c.socket, c, socknotify.EventIn|socknotify.EventHangup,
		socknotify.TriggerLevel|socknotify.TriggerOneShot)
}

// A server is the state that the workers share.
type server struct {
	port *socknotify.Port[key]

	mu   sync.Mutex
	open map[*connection]struct{} // to be closed after a failed run
	left int                      // connections that have not ended yet
	err  error                    // the first failure
}

// Run starts a server and its clients, and returns when all are done.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	res.ExpectedBytes = int64(cfg.Clients) * int64(cfg.Messages) * client.MessageSize

	port, err := socknotify.New[key](socknotify.WithBackend(cfg.Backend))
	if err != nil {
		return res, err
	}
	defer port.Close()
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: cfg.Clients})
	if err != nil {
		return res, err
	}
	defer listener.Close()
	if err := port.Accept(listener, nil, dequeueCount); err != nil {
		return res, err
	}

	s := &server{port: port, open: make(map[*connection]struct{}), left: cfg.Clients}
	workers := make([]worker, cfg.Workers)
	var working, sending sync.WaitGroup
	for i := range workers {
		workers[i].server = s
		working.Go(func() { workers[i].run(ctx) })
	}
	clients, cancel := context.WithCancel(ctx)
	defer cancel()
	for range cfg.Clients {
		sending.Go(func() {
			if err := client.TCP(clients, listener.LocalAddr(), cfg.Messages); err != nil {
				s.fail(err)
			}
		})
	}
	working.Wait()

	// No goroutine waits on the port any more. After a failure there may be open connections, whose
	// clients would wait without end.
	if s.failure() != nil {
		cancel()
	}
	for c := range s.open {
		c.socket.Close()
	}
	port.Deregister(socknotify.Remove[key](listener))
	sending.Wait()

	for i := range workers {
		w := &workers[i]
		res.PerWorker = append(res.PerWorker, w.notifications)
		res.Notifications += w.notifications
		res.Bytes += w.bytes
		res.Removals += w.removals
	}
	return res, s.failure()
}

// remember stores the first failure, which Run returns.
func (s *server) remember(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *server) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// fail stores a failure after which the server cannot continue, and makes the workers exit.
func (s *server) fail(err error) {
	s.remember(err)
	s.sendExit()
}

// sendExit wakes one worker, which wakes the next. The port is open as long as there are workers,
// so Post cannot fail.
func (s *server) sendExit() { s.port.Post(nil, 0) }

// free closes a connection that has no registration any more. After the last one the workers exit.
func (s *server) free(c *connection) {
	c.socket.Close()
	s.mu.Lock()
	delete(s.open, c)
	s.left--
	last := s.left == 0
	s.mu.Unlock()
	if last {
		s.sendExit()
	}
}

// dequeueCount is how many notifications a worker dequeues at a time.
const dequeueCount = 3

// A worker is one of the goroutines that wait on the port.
type worker struct {
	server        *server
	notifications int
	removals      int
	bytes         int64
	regs          []socknotify.Registration[key] // of the next call: at most one for each notification
	chunk         [512]byte
}

// run handles notifications until it receives the exit message.
func (w *worker) run(ctx context.Context) {
	ready := make([]socknotify.Notification[key], dequeueCount)
	for {
		n, err := w.server.port.ProcessContext(ctx, w.regs, ready)
		w.cleanUp() // the registrations are done even if nothing was dequeued
		if err != nil {
			w.server.fail(err)
			return
		}
		w.regs = w.regs[:0]
		leave := false
		for _, nt := range ready[:n] {
			switch {
			case nt.Kind() == socknotify.KindPosted:
				leave = true
			case nt.Kind() == socknotify.KindAccepted:
				w.notifications++
				w.accepted(nt.Accepted())
			case nt.Events == socknotify.EventRemove:
				w.removals++
				w.server.free(nt.Key)
			default:
				w.notifications++
				w.receive(nt.Key)
			}
		}
		if leave {
			w.server.sendExit()
			return
		}
	}
}

// cleanUp handles registrations that failed. All are one-shot, so no other worker can hold a
// notification of a connection that could not be enabled: it still belongs to this worker.
func (w *worker) cleanUp() {
	for i := range w.regs {
		r := &w.regs[i]
		if r.Result == nil {
			continue
		}
		w.server.fail(r.Result)
		remove := []socknotify.Registration[key]{socknotify.Remove[key](r.Conn)}
		if _, err := w.server.port.Process(remove, nil, 0); err != nil || remove[0].Result != nil {
			// It was never registered, or is not any more: no EventRemove will come.
			w.server.free(r.Key)
		}
	}
}

// accepted begins to receive from a new connection.
func (w *worker) accepted(socket *sock.Socket, err error) {
	if err != nil {
		w.server.fail(fmt.Errorf("accept: %w", err))
		return
	}
	c := &connection{socket: socket}
	w.server.mu.Lock()
	w.server.open[c] = struct{}{}
	w.server.mu.Unlock()
	w.regs = append(w.regs, enableConnection(c))
}

// receive receives one chunk. A hang-up may be notified before the last data was received, so only
// the receive says when the connection has ended. Until then the level notifies again. The events
// are only a hint.
func (w *worker) receive(c *connection) {
	n, err := c.socket.Recv(w.chunk[:])
	w.bytes += int64(n)
	if errors.Is(err, sock.ErrWouldBlock) {
		err = c.socket.Err() // nil if there was no error
	}
	// An entry has one operation, so a connection is either enabled again or removed.
	next := enableConnection(c)
	if err != nil {
		next.Op = socknotify.OpRemove
	}
	if err != nil && !errors.Is(err, io.EOF) {
		w.server.remember(fmt.Errorf("receive: %w", err)) // ends this connection only
	}
	w.regs = append(w.regs, next)
}
