package park

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/wheel"
)

// Config configures a [Lot]. The zero value sets no limits. A negative number means none, as 0
// does.
type Config struct {
	// IdleTimeout is the time that a connection may stay parked; Options.IdleTimeout overrides it.
	// When it expires, the function runs and its Read fails with os.ErrDeadlineExceeded. The
	// timeout is never early and at most 0.2 seconds late. 0 means none.
	IdleTimeout time.Duration
	// MaxRunning limits the number of functions that run concurrently. 0 means no limit.
	// Connections that become ready while the limit is reached wait, in order, and have no idle
	// timeout then; Stats.Waiting counts them. Functions should bound the time that they wait for
	// the rest of a message by a read deadline: each one that waits is one of the limit. If
	// functions wait for each other, the limit must be high enough for all of them to run.
	MaxRunning int
	// Backend is the backend of the lot's port, one of socknotify.Backends. The empty string
	// selects the default.
	Backend string
	// Name, if not empty, names the lot in profiles and in the log: the goroutines that run
	// functions have the label socknotify_server of package runtime/pprof with this value, and log
	// lines have it as "name".
	Name string
	// TimeCalls makes the lot measure how long functions take, for Stats.CallTime. It costs two
	// readings of the clock for each call.
	TimeCalls bool
	// Unwrap, if not nil, returns the connection directly below a wrapper; [Lot.Park] describes
	// what the lot does with it. If it returns nil, the lot looks for methods and embedded
	// connections. If it returns its argument, the lot does not look below it. It may be called
	// concurrently, and must not call the lot or use the connection other than to find the one
	// below. A panic of it is logged, counted in Stats.Panics, and ends the connection; Park fails
	// with it.
	Unwrap func(net.Conn) net.Conn
	// Logger receives one warning for each type of connections that cannot be parked, and panics of
	// a connection's methods when the lot calls them: at most ten lines of each message in a
	// second. Its handler must not call the lot or a parked connection, because the lot may hold a
	// lock. For the same reason the Read, SetReadDeadline and Close methods of a connection must
	// not call the lot, or the [Conn] around the connection. nil is slog.Default.
	Logger *slog.Logger

	batch int // of its workers; 0 is 1
}

// A Lot holds parked connections. Its methods may be called concurrently. The functions that it
// runs may call all of them except Shutdown, which waits for the functions to return.
type Lot struct {
	config     Config
	log        serving.Log
	port       *socknotify.Port[*parkedConn]
	wheel      *wheel.Wheel[*parkedConn]
	clock      clock.Clock
	start      time.Time
	conns      table
	workers    workers
	monitor    keepMonitor
	registrars sync.Pool
	sweep      sweeper
	stats      counters
	unfit      sync.Map // keys are the types of connections that cannot be parked

	// open counts the reasons to keep the port open: one for the lot until Close, and one for each
	// connection that is parked or whose function is running. The port is closed when it reaches 0.
	open    atomic.Int64
	closing atomic.Bool
	once    sync.Once
	ended   chan struct{}
}

// tick is the resolution of idle timeouts.
const tick = 100 * time.Millisecond

// New returns a new lot. The caller must close it with Close or Shutdown. New fails with the errors
// of socknotify.New, which is socknotify.ErrInvalid for a Backend that does not exist.
func New(config Config) (*Lot, error) {
	return openLot(config, func() *slog.Logger { return config.Logger })
}

// openLot is New with a function that is called for each message, in place of Config.Logger.
func openLot(config Config, logger func() *slog.Logger) (*Lot, error) {
	port, err := socknotify.New[*parkedConn](socknotify.WithBackend(config.Backend))
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("%w: Backend: %w", socknotify.ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("park: new: %w", err)
	}
	l := &Lot{config: config, port: port, clock: clock.Current()}
	l.log.Prefix, l.log.Name, l.log.Logger = "park: ", config.Name, logger
	l.start, l.ended = l.clock.Now(), make(chan struct{})
	l.wheel = wheel.New(l.clock, tick, func(pc *parkedConn) *wheel.Timer[*parkedConn] { return &pc.timer }, l.expire)
	l.workers.max, l.workers.batch = config.MaxRunning, max(config.batch, 1)
	if config.batch > 1 {
		l.workers.room = make([]ready, 0, 4*config.batch)
	}
	l.registrars.New = func() any { return newRegistrar(l) }
	l.open.Store(1)
	l.startWorker()
	return l, nil
}

// A Key identifies a parked connection on the lot's port. It is opaque.
type Key = *parkedConn

// Port returns the lot's port for observation, for example by package debug. The lot owns the port:
// the caller must not register sockets with it, dequeue from it, or close it.
func (l *Lot) Port() *socknotify.Port[Key] { return l.port }

// Shutdown closes the lot and waits until every function has returned. From then on Park fails with
// ErrClosed. Connections that are parked are closed, and their functions run; Read fails there with
// net.ErrClosed. If ctx is done before every function has returned, Shutdown returns the cause of
// ctx. If ctx is nil, Shutdown does nothing and fails with socknotify.ErrInvalid.
func (l *Lot) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("park: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	l.Close()
	select {
	case <-l.ended:
		l.workers.exited.Wait()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the lot like Shutdown, but does not wait for functions to return. The lot's port is
// closed when the last function has returned. Close always returns nil.
func (l *Lot) Close() error {
	if l.closing.Swap(true) {
		return nil
	}
	l.sweep.stop()
	l.conns.all(func(pc *parkedConn) { l.dispatch(pc, evicted) })
	l.leave()
	return nil
}

// now returns the time since the lot's start.
func (l *Lot) now() time.Duration { return l.clock.Since(l.start) }

// enter adds a connection to open. It reports whether the lot accepts it; if so, leave must follow.
// enter increments open before it loads closing, because Close sets closing before it decrements
// open. In the other order the port could be closed although enter has returned true.
func (l *Lot) enter() bool {
	l.open.Add(1)
	if l.closing.Load() {
		l.leave()
		return false
	}
	return true
}

// leave removes a connection from open. The last one to leave after Close closes the port.
func (l *Lot) leave() {
	if l.open.Add(-1) == 0 {
		l.once.Do(l.closePort)
	}
}

func (l *Lot) closePort() {
	l.wheel.Close()
	l.port.Close()
	l.log.Flush()
	close(l.ended)
}
