package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wheel"
)

// A Handler is told what happens to connections. For one connection it is called by one goroutine at a
// time, so what belongs to the connection needs no lock; for different ones by several at once.
//
// An error that Open, Data or Writable returns closes the connection: io.EOF as [Conn.Close] does, any other
// at once, as the cause that Close is told. sock.ErrWouldBlock is no error here, so a handler may return
// what Read gave it. A panic closes the connection too, and is logged.
//
// A handler should not block: what must wait is done elsewhere, after [Conn.Pause] or [Conn.Hijack]. One
// that runs for long has its worker replaced meanwhile, so the other connections go on.
type Handler[S any] interface {
	// Open is called first, before anything of the connection is received.
	Open(c *Conn[S]) error
	// Data is called when something can be received: bytes, or the end of the stream. What it leaves makes
	// it be called again. buf is the worker's, for use until it returns.
	Data(c *Conn[S], buf []byte) error
	// Close is called last, exactly once for each Open, when no other call is under way or can come. The
	// cause is nil where this side closed, or returned io.EOF. The socket is closed after it.
	Close(c *Conn[S], cause error)
}

// A WritableHandler is a Handler that is told to go on after [Conn.Write] returned [ErrQueueFull], or
// [Conn.WantWritable] was called: at most half of what may be queued is.
type WritableHandler[S any] interface {
	Handler[S]
	// Writable is called as Data is, by one goroutine at a time with the handler's other calls.
	Writable(c *Conn[S]) error
}

// A Server serves connections with workers that share a port. S is the type of the state that each
// connection has for its handler.
//
// The fields are set before the first Serve and left alone after; one that makes no sense is
// socknotify.ErrInvalid there. A Server must not be copied.
type Server[S any] struct {
	Handler Handler[S]

	// Workers is how many goroutines serve; 0 is GOMAXPROCS.
	Workers int
	// Ports is how many ports the workers are spread over, each with its share of the connections; 0 is one
	// that all share. As many as there are workers spares them each other, but leaves one idle while
	// another has too much to do.
	Ports int
	// Backend is the ports' kernel, one of socknotify.Backends; "" is the default.
	Backend string
	// BufferSize is the size of a worker's buffer, in bytes; 0 is 64 KiB. It is at most half of WriteQueue, so
	// that Data can always write as much as it was given.
	BufferSize int

	// WriteQueue is how many bytes of a connection are queued at most when its peer does not read; 0 is
	// 256 KiB. While more than half of it is queued nothing is received.
	WriteQueue int
	// MaxQueued is how many bytes are queued at most for all connections together; 0 is no limit. The
	// connection that goes beyond it is closed.
	MaxQueued int64
	// MaxConns is how many connections there may be, and MaxConnsPerAddr how many from one IP address; 0
	// is no limit. One that goes beyond them is closed as it comes, without Open.
	MaxConns        int
	MaxConnsPerAddr int

	// IdleTimeout closes a connection that nothing has come for, and nothing was written to, for so long; 0
	// is never. While its handler runs, or it is paused or hijacked, or bytes are queued, it is not idle. See
	// also Conn.SetIdleTimeout. Time-outs come some 0.1 s late.
	IdleTimeout time.Duration
	// WriteTimeout closes a connection whose peer takes none of what is queued for so long; 0 is never.
	// After Conn.Close it is 5 s if it is not set. See also Conn.SetWriteTimeout.
	WriteTimeout time.Duration

	// KeepAlive and KeepAliveConfig are what net.ListenConfig has by these names: TCP connections have
	// keep-alive probes, every 15 s where both are zero, and none where KeepAlive is negative and the other's
	// Enable is false. What a system cannot be told stays as it is there.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// TLSConfig is what ServeTLS uses.
	TLSConfig *tls.Config
	// HandshakeTimeout closes a connection whose TLS handshake is not over in time; 0 is 10 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes is how many TLS handshakes are under way at most, each with a goroutine from when its first
	// record has come; 0 is 1024. When there are as many and another could begin, one that waits for its peer is
	// ended: of the address with the most unfinished handshakes, the one that began first. If none waits for its
	// peer, new ones wait. A handshake in a function of TLSConfig, such as GetCertificate, counts until the
	// function returns.
	MaxHandshakes int

	// Logger, if not nil, is told of failures, refusals and handlers that do not return. Of refused connections,
	// failed TLS handshakes, and functions of TLSConfig that panic, ten of each are logged in a second, and the
	// number of the others.
	Logger *slog.Logger
	// OnStart, if not nil, is called once, with the ports, before anything is served: for those who observe
	// them, such as package debug. It must not call the server.
	OnStart func(ports []*socknotify.Port[*Conn[S]])
	// StuckAfter is how long a handler may run before that is logged and counted; 0 is 10 s.
	StuckAfter time.Duration

	state[S]
}

// state is what a server that runs has.
type state[S any] struct {
	mu        sync.Mutex
	started   bool
	closing   bool          // nothing is served that was not accepted before
	late      bool          // nor is there time for a first request any more
	cut       bool          // and no connection is taken in
	emptying  bool          // a listener may have connections that wait
	failure   error         // why the server ended by itself
	drained   chan struct{} // no connection is left after closing
	stopped   chan struct{} // and no worker
	ports     []*socknotify.Port[*Conn[S]]
	listeners map[*listener[S]]struct{}
	workers   map[*worker[S]]struct{}
	atWork    int // workers asked for
	running   sync.WaitGroup
	table     table[S]
	addrs     addrs
	handled   atomic.Uint64 // connections that the ports have accepted, and that were taken in or turned away

	wheel   *wheel.Wheel[*Conn[S]]
	watcher *Conn[S] // in the wheel while there are connections
	extras  sync.Pool
	next    atomic.Uint32 // port of the next connection
	writer  WritableHandler[S]
	counts  counts

	handshakes handshakes[S]
	quotas     quotas
	tlsBuffers sync.Pool

	failures seldom
	refusals seldom
	options  []socknotify.Option // of the ports; a test's
	// Of these 0 is the constant of the name; they are a test's.
	patient   time.Duration
	graceTime time.Duration
}

var (
	// ErrServerClosed is what Serve returns after Shutdown or Close. It is http.ErrServerClosed's namesake.
	ErrServerClosed = errors.New("server: closed")
	// ErrQueueFull is what Write returns, beside how much it took, when more would exceed the connection's
	// queue.
	ErrQueueFull = errors.New("server: write queue is full")
	// ErrOverload is the cause of a connection closed because too much was queued for all together.
	ErrOverload = errors.New("server: too many bytes queued")
	// ErrIdle is the cause of a connection closed after IdleTimeout, and ErrSlow after WriteTimeout. Both
	// are os.ErrDeadlineExceeded to errors.Is.
	ErrIdle error = &timeoutError{"server: idle for too long"}
	ErrSlow error = &timeoutError{"server: peer does not read"}
)

const (
	tick         = 50 * time.Millisecond
	defaultQueue = 256 << 10
	defaultBuf   = 64 << 10
	lingerTime   = 5 * time.Second
	defaultStuck = 10 * time.Second
)

// start makes ports and workers, once. The server's lock is held.
func (s *Server[S]) start() error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.started:
		return nil
	case s.Handler == nil:
		return wrong("no Handler")
	}
	if err := checkFields(field{"Workers", int64(s.Workers), 0}, field{"Ports", int64(s.Ports), maxPorts},
		field{"BufferSize", int64(s.BufferSize), 0}, field{"WriteQueue", int64(s.WriteQueue), 0},
		field{"MaxQueued", s.MaxQueued, 0}, field{"MaxConns", int64(s.MaxConns), 0},
		field{"MaxConnsPerAddr", int64(s.MaxConnsPerAddr), 0}, field{"MaxHandshakes", int64(s.MaxHandshakes), 0},
	); err != nil {
		return err
	}
	workers := s.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ports := min(max(s.Ports, 1), workers)
	defer func() { // OnStart may panic
		if !s.started {
			for _, p := range s.ports {
				p.Close()
			}
			s.ports = nil
		}
	}()
	for range ports {
		p, err := socknotify.New[*Conn[S]](append([]socknotify.Option{socknotify.WithBackend(s.Backend)}, s.options...)...)
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		s.ports = append(s.ports, p)
	}
	s.init()
	if s.OnStart != nil {
		s.OnStart(slices.Clone(s.ports))
	}
	for i := range workers {
		s.addWorker(&worker[S]{server: s, port: s.ports[i%ports], alone: workers == ports})
	}
	s.atWork = workers
	s.started = true
	return nil
}

// init makes what needs no system.
func (s *Server[S]) init() {
	s.writer, _ = s.Handler.(WritableHandler[S])
	s.drained, s.stopped = make(chan struct{}), make(chan struct{})
	s.listeners = make(map[*listener[S]]struct{})
	s.workers = make(map[*worker[S]]struct{})
	s.addrs = addrs{make(map[netip.Addr]int), make(map[uint32]netip.Addr)}
	s.extras.New = func() any { return new(extra) }
	s.tlsBuffers.New = func() any { return new(tlsBuffer) }
	s.handshakes.init()
	s.watcher = new(Conn[S])
	s.wheel = wheel.New(tick, func(c *Conn[S]) *wheel.Timer[*Conn[S]] { return &c.timer }, s.expired)
}

const maxPorts = 1 << 16

func (s *Server[S]) bufferSize() int {
	n := s.BufferSize
	if n == 0 {
		n = defaultBuf
	}
	return max(min(n, s.writeQueue()/2), 1)
}

func (s *Server[S]) writeQueue() int {
	if s.WriteQueue == 0 {
		return defaultQueue
	}
	return s.WriteQueue
}

func (s *Server[S]) log(level slog.Level, msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Log(context.Background(), level, msg, args...)
	}
}
