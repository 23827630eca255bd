package server

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/clock"
	"github.com/socknotify/socknotify/internal/wheel"
)

// A server is what is inside a Server[S]. It does not depend on the type of the connections' states.
type server struct {
	config // set by start
	journal

	mu               sync.Mutex
	started          bool
	closing          bool          // Shutdown or Close was called
	graceOver        bool          // the time for first requests at the end is over
	refusing         bool          // no more connections are added
	acceptingBacklog bool          // Shutdown accepts what is in the backlogs of listeners
	failure          error         // why the server ended without Shutdown or Close
	drained          chan struct{} // closed when closing and no connection is left
	stopped          chan struct{} // closed when no worker is left either
	shards           []shard
	ports            []*socknotify.Port[*Key] // of the shards
	balances         bool                     // each shard has one worker, unless it is helped
	balanced         time.Duration            // when balance was last called, by elapsed
	listeners        map[*listener]struct{}
	workers          map[*worker]struct{}
	running          sync.WaitGroup
	table            table
	addrs            addrs
	acceptRates      acceptRates
	handled          atomic.Uint64 // connections that the ports have accepted and that were added or refused

	wheel   *wheel.Wheel[*conn]
	ticker  *conn // a wheel entry that calls the watchdog, while there are connections
	extras  sync.Pool
	inputs  sync.Pool
	buffers buffers
	counts  counts
	traffic *traffic

	handshakes handshakes
	tlsBuffers sync.Pool

	// Set by tests.
	options   []socknotify.Option // of the ports
	giveUp    time.Duration       // instead of giveUpAfter
	graceTime time.Duration       // instead of the constant
}

// start makes the ports and the workers, if there are none. The server's lock is held.
func (s *server) start(c *config) error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.started:
		return nil
	}
	s.config = *c
	if err := s.check(); err != nil {
		return err
	}
	defer func() { // OnStart may panic
		if !s.started {
			for _, p := range s.shards {
				p.Close()
			}
			s.shards, s.ports = nil, nil
		}
	}()
	for range s.Shards {
		p, err := socknotify.New[*Key](append([]socknotify.Option{socknotify.WithBackend(s.Backend)}, s.options...)...)
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.shards = append(s.shards, shard{Port: p, helped: new(atomic.Uint64)})
		s.ports = append(s.ports, p)
	}
	s.init()
	if s.OnStart != nil {
		s.OnStart(slices.Clone(s.ports))
	}
	s.balances = s.Workers == s.Shards && s.Shards > 1
	for i := range s.Workers {
		s.addWorker(i%s.Shards, nil)
	}
	s.started = true
	return nil
}

// init makes everything that needs no call of the system.
func (s *server) init() {
	s.open(s.Logger, s.Name)
	s.drained, s.stopped = make(chan struct{}), make(chan struct{})
	s.listeners = make(map[*listener]struct{})
	s.workers = make(map[*worker]struct{})
	s.addrs = addrs{make(map[netip.Addr]int), make(map[*conn]netip.Addr)}
	s.extras.New = func() any { return new(extra) }
	s.inputs.New = func() any { return new(input) }
	s.tlsBuffers.New = func() any { return new(tlsBuffer) }
	s.handshakes.init()
	s.traffic = new(traffic)
	s.ticker = new(conn)
	s.wheel = wheel.New(clock.Current(), tick, func(c *conn) *wheel.Timer[*conn] { return &c.timer }, s.expired)
}

// elapsed returns the time since the program started.
func (s *server) elapsed() time.Duration { return time.Since(epoch) }

var epoch = time.Now()
