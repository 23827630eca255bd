// Package multithreaded is the third sample: a TCP server on one port with many workers.
//
// A listener and all its connections are registered with one port, and every worker waits on it, so
// the work goes to whoever is free. Registrations are level-triggered and one-shot: a notification
// disables its registration, and therefore whatever belongs to the socket is, without any lock, the
// worker's that holds the notification. The worker takes one chunk, and enables the registration
// again in the very call in which it dequeues its next notifications. If there is more to receive,
// that call, or another worker's, is told at once.
//
// A connection ends with OpRemove. Its EventRemove is the last word about it, and whoever dequeues
// that frees it. The last one out posts an exit message, which every worker passes on as it leaves.
package multithreaded

import (
	"context"
	"sync"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/sock"
)

// Config says how many there are of everything.
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

// Result is what the server saw.
type Result struct {
	Notifications int   // without removals and posts
	PerWorker     []int // notifications
	Bytes         int64
	ExpectedBytes int64
	Removals      int // of connections; one per client is right
}

// A key is what a notification is about. Its types are how a worker tells them apart: a listener, a
// connection, or a message that was posted. Other kinds of completion would be further types.
type key interface{ isKey() }

type (
	// A listener makes connections.
	listener struct {
		socket *sock.Socket
		left   int // connections to accept yet
	}
	// A connection belongs to the worker that holds its notification.
	connection struct {
		socket *sock.Socket
	}
	// exit is posted, never registered.
	exit struct{}
)

func (*listener) isKey()   {}
func (*connection) isKey() {}
func (exit) isKey()        {}

const (
	trigger = socknotify.TriggerLevel | socknotify.TriggerOneShot
	inOrEnd = socknotify.EventIn | socknotify.EventHangup
)

func enableListener(l *listener) socknotify.Registration[key] {
	return socknotify.Enable[key](l.socket, l, socknotify.EventIn, trigger)
}

func enableConnection(c *connection) socknotify.Registration[key] {
	return socknotify.Enable[key](c.socket, c, inOrEnd, trigger)
}

// A server is what the workers share.
type server struct {
	port *socknotify.Port[key]

	mu   sync.Mutex
	open map[*connection]struct{} // what a failed run leaves behind
	left int                      // connections that have not ended yet
	err  error                    // the first failure
}

// Run starts a server and its clients, and returns when all are done.
func Run(ctx context.Context, cfg Config) (Result, error) {
	res := Result{ExpectedBytes: int64(cfg.Clients) * int64(cfg.Messages) * client.MessageSize}

	port, err := socknotify.New[key](socknotify.WithBackend(cfg.Backend))
	if err != nil {
		return res, err
	}
	defer port.Close()
	socket, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: cfg.Clients})
	if err != nil {
		return res, err
	}
	defer socket.Close()

	s := &server{port: port, open: make(map[*connection]struct{}), left: cfg.Clients}
	l := &listener{socket: socket, left: cfg.Clients}
	regs := []socknotify.Registration[key]{enableListener(l)}
	if _, err := port.Process(regs, nil, 0); err != nil {
		return res, err
	}
	if regs[0].Result != nil {
		return res, regs[0].Result
	}

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
			if err := client.TCP(clients, socket.LocalAddr(), cfg.Messages); err != nil {
				s.fail(err)
			}
		})
	}
	working.Wait()

	// Nobody waits on the port any more. After a failure connections may be left; the clients of
	// these would wait for ever.
	if s.failure() != nil {
		cancel()
	}
	for c := range s.open {
		c.socket.Close()
	}
	port.Deregister(socknotify.Remove[key](socket))
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

// remember keeps the first failure for Run to return.
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

// fail is for what the server cannot go on after: it tells the workers to exit.
func (s *server) fail(err error) {
	s.remember(err)
	s.sendExit()
}

// sendExit wakes one worker, which will wake the next. The port is open as long as there are
// workers, so Post cannot fail.
func (s *server) sendExit() { s.port.Post(exit{}, 0) }

func (s *server) opened(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
}

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
