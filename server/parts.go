package server

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server/internal/conn"
)

// A server is what is inside a Server[S]. It does not depend on the type of the connections'
// states.
type server struct {
	conn.Shared              // what its connections use; set by start
	opts        *Server[any] // set by start
	handler     caller       // set by start

	mu               sync.Mutex
	started          bool
	closing          bool          // Shutdown or Close was called
	graceOver        bool          // the time for first requests at the end is over
	refusing         bool          // no more connections are added
	acceptingBacklog bool          // Shutdown accepts what is in the backlogs of listeners
	failure          error         // why the server ended without Shutdown or Close
	drained          chan struct{} // closed when closing and no connection is left
	stopped          chan struct{} // closed when no worker is left either
	shards           []shard       // of Ports
	balances         bool          // each shard has one worker, unless it is helped
	balanced         time.Duration // when balance was last called, by engine.Elapsed
	listeners        map[*listener]struct{}
	workers          map[*worker]struct{}
	ended            ended
	table            table
	addrs            addrs
	acceptRates      acceptRates
	handled          atomic.Uint64 // connections that the ports have accepted and that were handled

	// Set by tests.
	options   []socknotify.Option // of the ports
	giveUp    time.Duration       // instead of engine.GiveUpAfter
	graceTime time.Duration       // instead of the constant
}

// start makes the ports and the workers, if there are none. The server's lock is held.
func (s *server) start(c config) error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.started:
		return nil
	}
	if err := c.check(); err != nil {
		return err
	}
	s.opts, s.handler = c.opts, c.handler
	o := c.opts
	defer func() { // OnStart may panic
		if !s.started {
			for _, p := range s.Ports {
				p.Close()
			}
			s.shards, s.Ports = nil, nil
		}
	}()
	options := append([]socknotify.Option{socknotify.WithBackend(o.Backend)}, s.options...)
	for range o.Shards {
		p, err := socknotify.New[*Key](options...)
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.shards = append(s.shards, shard{helped: new(atomic.Uint64)})
		s.Ports = append(s.Ports, p)
	}
	s.init()
	if o.OnStart != nil {
		o.OnStart(slices.Clone(s.Ports))
	}
	s.balances = o.Workers == o.Shards && o.Shards > 1
	for i := range o.Workers {
		s.addWorker(i%o.Shards, nil)
	}
	s.started = true
	return nil
}

// init makes everything that needs no call of the system.
func (s *server) init() {
	copyOptions(&s.Options, s.opts)
	s.Open(s.opts.Logger, s.opts.Name)
	s.KeepAlive = s.opts.keepAlive()
	s.Shared.Init(s.handler)
	s.drained, s.stopped = make(chan struct{}), make(chan struct{})
	s.listeners = make(map[*listener]struct{})
	s.workers = make(map[*worker]struct{})
	s.addrs = addrs{make(map[netip.Addr]int), make(map[*conn.Conn]netip.Addr)}
}

// fail ends the server because a port cannot be waited on. Each Serve returns the error.
func (s *server) fail(err error) {
	s.mu.Lock()
	again := s.refusing || s.failure != nil
	if !again {
		s.failure = err
	}
	s.mu.Unlock()
	if again {
		return
	}
	s.Log(slog.LevelError, "cannot wait for notifications, closing the server", "err", err)
	s.end(err)
}
