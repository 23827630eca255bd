package parking

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

// A Config has the fields of park.Config, which are described there.
type Config struct {
	IdleTimeout time.Duration
	MaxRunning  int
	Backend     string
	Name        string
	TimeCalls   bool
	Unwrap      func(net.Conn) net.Conn
	Logger      *slog.Logger
}

// A Lot holds parked connections. What park.Lot has too is described there.
type Lot struct {
	config     Config
	Log        serving.Log
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

// Tick is the resolution of idle timeouts.
const Tick = 100 * time.Millisecond

// New returns a new lot.
func New(config Config) (*Lot, error) {
	return Open(config, func() *slog.Logger { return config.Logger })
}

// Open is New with a function that is called for each message, in place of Config.Logger.
func Open(config Config, logger func() *slog.Logger) (*Lot, error) {
	port, err := socknotify.New[*parkedConn](socknotify.WithBackend(config.Backend))
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("%w: Backend: %w", socknotify.ErrInvalid, err)
	}
	if err != nil {
		return nil, fmt.Errorf("park: new: %w", err)
	}
	l := &Lot{config: config, port: port, clock: clock.Current()}
	l.Log.Prefix, l.Log.Name, l.Log.Logger = "park: ", config.Name, logger
	l.start, l.ended = l.clock.Now(), make(chan struct{})
	l.wheel = wheel.New(l.clock, Tick, func(pc *parkedConn) *wheel.Timer[*parkedConn] { return &pc.timer }, l.expire)
	l.workers.max = config.MaxRunning
	l.workers.batch.Store(1)
	l.registrars.New = func() any { return newRegistrar(l) }
	l.open.Store(1)
	l.startWorker()
	return l, nil
}

// A Key identifies a parked connection on the lot's port. It is opaque.
type Key = *parkedConn

// Port returns the port, for observation.
func (l *Lot) Port() *socknotify.Port[Key] { return l.port }

// Shutdown closes the lot and waits until every function has returned, or ctx is done.
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

// Close closes the lot like Shutdown, but does not wait for functions to return.
func (l *Lot) Close() error {
	if l.closing.Swap(true) {
		return nil
	}
	l.sweep.stop()
	l.conns.all(func(pc *parkedConn) { l.dispatch(pc, Evicted) })
	l.leave()
	return nil
}

// Clock returns the clock of the lot's timeouts.
func (l *Lot) Clock() clock.Clock { return l.clock }

// Time returns the time that is so long after the lot's start.
func (l *Lot) Time(sinceStart time.Duration) time.Time { return l.start.Add(sinceStart) }

// Since returns how long after the lot's start t is.
func (l *Lot) Since(t time.Time) time.Duration { return t.Sub(l.start) }

// IsClosing reports whether the lot was closed.
func (l *Lot) IsClosing() bool { return l.closing.Load() }

// Ended returns a channel that is closed when the lot is closed and every function has returned.
func (l *Lot) Ended() <-chan struct{} { return l.ended }

// Now returns the time since the lot's start.
func (l *Lot) Now() time.Duration { return l.clock.Since(l.start) }

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
	l.Log.Flush()
	close(l.ended)
}
