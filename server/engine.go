package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/clock"
	"github.com/socknotify/socknotify/internal/wheel"
)

// config has the fields of a Server[S], which are documented there.
type config struct {
	handler calls // nil where there is none

	Workers         int
	Shards          int
	Backend         string
	BufferSize      int
	MaxInput        int
	WriteQueue      int
	MaxQueued       int64
	MaxConns        int
	MaxConnsPerAddr int

	AcceptRate, AcceptRatePerAddr, ReadRate, WriteRate Rate

	Preamble         func(remote, local net.Addr, b []byte) (Preamble, error)
	IdleTimeout      time.Duration
	WriteTimeout     time.Duration
	MessageTimeout   time.Duration
	KeepAlive        time.Duration
	KeepAliveConfig  net.KeepAliveConfig
	TLSConfig        *tls.Config
	HandshakeTimeout time.Duration
	MaxHandshakes    int
	Logger           *slog.Logger
	OnStart          func(shards []*socknotify.Port[*Key])
	Name             string
	TimeCalls        bool
	StuckAfter       time.Duration
}

// A server is what is inside a Server[S]. It does not depend on the type of the connections' states.
type server struct {
	config // set by start

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
	balances         bool          // each shard has one worker, and there are several
	balanced         time.Duration // when balance was last called, by elapsed
	listeners        map[*listener]struct{}
	workers          map[*worker]struct{}
	nworkers         int // workers asked for
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
	labels  context.Context // of package pprof, nil without Name

	handshakes handshakes
	quotas     quotas
	tlsBuffers sync.Pool

	failures oncePerSecond
	refusals oncePerSecond
	// Set by tests.
	options   []socknotify.Option // of the ports
	giveUp    time.Duration       // instead of giveUpAfter
	graceTime time.Duration       // instead of the constant
}

const (
	tick         = 50 * time.Millisecond
	defaultInput = 1 << 20
	defaultQueue = 256 << 10
	defaultBuf   = 64 << 10
	lingerTime   = 5 * time.Second
	defaultStuck = 10 * time.Second
)

// start makes the ports and the workers, if there are none. The server's lock is held.
func (s *server) start(c *config) error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.started:
		return nil
	case c.handler == nil:
		return invalid("Handler is nil")
	}
	s.config = *c
	if err := checkFields(field{"Workers", int64(s.Workers), 0}, field{"Shards", int64(s.Shards), maxShards},
		field{"BufferSize", int64(s.BufferSize), 0}, field{"MaxInput", int64(s.MaxInput), math.MaxInt32}, field{"WriteQueue", int64(s.WriteQueue), 0},
		field{"MaxQueued", s.MaxQueued, 0}, field{"MaxConns", int64(s.MaxConns), 0},
		field{"MaxConnsPerAddr", int64(s.MaxConnsPerAddr), 0}, field{"MaxHandshakes", int64(s.MaxHandshakes), 0},
	); err != nil {
		return err
	}
	if err := cmp.Or(checkRate("AcceptRate", s.AcceptRate), checkRate("AcceptRatePerAddr", s.AcceptRatePerAddr),
		checkRate("ReadRate", s.ReadRate), checkRate("WriteRate", s.WriteRate)); err != nil {
		return err
	}
	workers := s.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	shards := workers
	if s.Shards > 0 {
		shards = min(s.Shards, workers)
	}
	defer func() { // OnStart may panic
		if !s.started {
			for _, p := range s.shards {
				p.Close()
			}
			s.shards = nil
		}
	}()
	var ports []*socknotify.Port[*Key]
	for range shards {
		p, err := socknotify.New[*Key](append([]socknotify.Option{socknotify.WithBackend(s.Backend)}, s.options...)...)
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.shards = append(s.shards, shard{Port: p})
		ports = append(ports, p)
	}
	s.init()
	if s.OnStart != nil {
		s.OnStart(ports)
	}
	s.nworkers, s.balances = workers, workers == shards && shards > 1
	for i := range workers {
		s.addWorker(&worker{server: s, port: ports[i%shards], shard: uint16(i % shards), most: batch, activity: activity{alone: workers == shards}})
	}
	s.started = true
	return nil
}

// init makes everything that needs no call of the system.
func (s *server) init() {
	s.MaxInput = cmp.Or(s.MaxInput, defaultInput)
	s.WriteQueue = cmp.Or(s.WriteQueue, defaultQueue)
	s.BufferSize = max(min(cmp.Or(s.BufferSize, defaultBuf), s.WriteQueue/2), 1)
	s.drained, s.stopped = make(chan struct{}), make(chan struct{})
	s.listeners = make(map[*listener]struct{})
	s.workers = make(map[*worker]struct{})
	s.addrs = addrs{make(map[netip.Addr]int), make(map[uint32]netip.Addr)}
	s.extras.New = func() any { return new(extra) }
	s.inputs.New = func() any { return new(input) }
	s.tlsBuffers.New = func() any { return new(tlsBuffer) }
	s.handshakes.init()
	s.traffic = new(traffic)
	if s.Name != "" {
		s.labels = pprof.WithLabels(context.Background(), pprof.Labels("socknotify_server", s.Name))
	}
	s.ticker = new(conn)
	s.wheel = wheel.New(clock.Current(), tick, func(c *conn) *wheel.Timer[*conn] { return &c.timer }, s.expired)
}

const maxShards = 1 << 16

// elapsed returns the time since the program started.
func (s *server) elapsed() time.Duration { return time.Since(epoch) }

var epoch = time.Now()

func (s *server) log(level slog.Level, msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Log(context.Background(), level, msg, args...)
	}
}
