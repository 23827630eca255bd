// Package rawecho is an echo server on nothing but a port and its sockets: many workers, one-shot
// registrations, accepted connections as notifications. It is what package server is measured against.
package rawecho

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/sock"
)

// Config says how to serve.
type Config struct {
	Addr      netip.AddrPort
	Workers   int
	Listeners int    // on the one address, where more than one
	Backend   string // of the port; "" is the system's first
	// Listening, if not nil, is called with the address once connections are taken.
	Listening func(netip.AddrPort)
	// Failed, if not nil, is called with what went wrong beside the connections.
	Failed func(error)
	// Watch, if not nil, is called with what shows the port, before it is used.
	Watch func(debug.Option)
}

// Totals are what a server did.
type Totals struct {
	Connections int64
	Messages    int64 // receives that had data
	Bytes       int64 // sent back
}

const (
	accepts = 64
	// grace is how long the peers have to take what is still to be sent when the server stops.
	grace = 2 * time.Second
	// enough is how many notifications a worker takes at a time.
	enough  = 128
	bufSize = 64 << 10
)

// A server serves. Keys are connections, or nil for a listener.
type server struct {
	cfg       Config
	port      *socknotify.Port[*conn]
	listeners []*sock.Socket
	workers   []*worker

	mu    sync.Mutex
	conns map[*conn]struct{}
	empty func()        // says that no connection is left after stopping
	gone  chan struct{} // that it did

	stopping    atomic.Bool
	connections atomic.Int64
}

// A conn belongs to the worker that holds its notification.
type conn struct {
	sock *sock.Socket
	held sock.Held // for as long as it is served
	rest []byte    // received, and yet to be sent
}

// Run serves until the context is done, and then lets the peers have what they are owed. It returns what
// was done, and an error where it could not serve.
func Run(ctx context.Context, cfg Config) (Totals, error) {
	s := &server{cfg: cfg, conns: make(map[*conn]struct{}), gone: make(chan struct{})}
	s.empty = sync.OnceFunc(func() { close(s.gone) })
	var opts []socknotify.Option
	if cfg.Backend != "" {
		opts = append(opts, socknotify.WithBackend(cfg.Backend))
	}
	var err error
	if s.port, err = socknotify.New[*conn](opts...); err != nil {
		return Totals{}, err
	}
	defer s.port.Close()
	if cfg.Watch != nil {
		cfg.Watch(debug.Port("echo", s.port))
	}
	if err := s.listen(); err != nil {
		return Totals{}, err
	}
	defer s.unlisten()

	var running sync.WaitGroup
	for range max(cfg.Workers, 1) {
		w := &worker{server: s, buf: make([]byte, bufSize)}
		s.workers = append(s.workers, w)
		running.Go(w.run)
	}
	if cfg.Listening != nil {
		cfg.Listening(s.listeners[0].LocalAddr())
	}
	<-ctx.Done()
	s.stop()
	s.port.Close() // the workers leave
	running.Wait()
	for c := range s.conns {
		c.held.Release()
	}

	t := Totals{Connections: s.connections.Load()}
	for _, w := range s.workers {
		t.Messages += w.messages
		t.Bytes += w.bytes
	}
	return t, nil
}

func (s *server) listen() error {
	if s.cfg.Listeners > 1 {
		group, err := sock.ListenTCPGroup(s.cfg.Addr, sock.ListenOptions{}, s.cfg.Listeners)
		if err != nil {
			return err
		}
		s.listeners = group
	} else {
		l, err := sock.ListenTCP(s.cfg.Addr, sock.ListenOptions{})
		if err != nil {
			return err
		}
		s.listeners = []*sock.Socket{l}
	}
	for _, l := range s.listeners {
		if err := s.port.Accept(l, nil, accepts); err != nil {
			s.unlisten()
			return err
		}
	}
	return nil
}

func (s *server) unlisten() {
	for _, l := range s.listeners {
		l.Close()
	}
}

// stop takes no more connections and shuts the receiving side of those there are, so that each is echoed
// what has come and then ends. A peer that is still sending then is reset.
func (s *server) stop() {
	s.unlisten()
	s.mu.Lock()
	s.stopping.Store(true)
	for c := range s.conns {
		c.sock.Shutdown(sock.ShutRead)
	}
	left := len(s.conns)
	s.mu.Unlock()
	if left > 0 {
		select {
		case <-s.gone:
		case <-time.After(grace):
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.sock.Close()
	}
}

// opened takes a new connection in.
func (s *server) opened(c *conn) {
	s.connections.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	if s.stopping.Load() {
		c.sock.Shutdown(sock.ShutRead)
	}
}

// close ends a connection. Its registration ends with the socket, and whoever calls holds the only
// notification there is, so nothing more comes.
func (s *server) close(c *conn) {
	c.sock.Close()
	c.held.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.stopping.Load() && len(s.conns) == 0 {
		s.empty()
	}
}

func (s *server) fail(err error) {
	if s.cfg.Failed != nil && !errors.Is(err, socknotify.ErrClosed) {
		s.cfg.Failed(fmt.Errorf("serve: %w", err))
	}
}
