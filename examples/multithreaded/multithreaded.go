// Package multithreaded is the third example: a TCP server on one port with many workers.
//
// A listener and all its connections are registered with one port, on which every worker waits. So a notification goes
// to a free worker. Registrations are level-triggered and one-shot: a notification disables its registration. So the
// state of a connection belongs to the worker that holds its notification, without a lock. The worker receives one
// chunk, and enables the registration again in the call with which it dequeues its next notifications. If there is more
// to receive, that call or the call of another worker returns at once.
//
// A connection ends with OpRemove. Its EventRemove is the last notification, and the worker that dequeues it frees the
// connection. The worker that frees the last connection posts an exit message, and every worker that receives it posts
// it again and returns.
package multithreaded

import (
	"context"
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

// Result is what the server counted.
type Result struct {
	Notifications int   // without removals and posts
	PerWorker     []int // notifications
	Bytes         int64
	ExpectedBytes int64
	Removals      int // of connections; want one per client
}

// A key identifies the subject of a notification: a listener, a connection, or a posted message. A worker distinguishes
// them by type. Other kinds of completions would be further types.
type key interface{ isKey() }

type (
	// A listener accepts connections.
	listener struct {
		socket *sock.Socket
		left   int // connections still to be accepted
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

// A server is the state that the workers share.
type server struct {
	port *socknotify.Port[key]

	mu   sync.Mutex
	open map[*connection]struct{} // to be closed after a failed run
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

	// No goroutine waits on the port any more. After a failure there may be open connections, whose clients would
	// wait without end.
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

// sendExit wakes one worker, which wakes the next. The port is open as long as there are workers, so Post cannot fail.
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
