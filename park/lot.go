package park

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wheel"
)

// Config is what [New] makes a [Lot] of. The zero value is a lot without limits.
type Config struct {
	// IdleTimeout is how long a connection may stay parked, unless Options say otherwise. Then its read
	// deadline passes, and the function runs. 0 is for ever. It is never early, and late by up to 0.2
	// seconds.
	IdleTimeout time.Duration
	// MaxRunning bounds the functions that run at once. What is ready meanwhile waits for its turn, first in
	// the sockets themselves. 0 is no bound. Functions that wait for each other need one that holds them all.
	MaxRunning int
	// Backend is the kernel of the lot's port, one of socknotify.Backends. Empty is the default.
	Backend string
}

// A Lot holds parked connections. Its methods may be called by any number of goroutines at once, and by the
// functions it runs, but for Shutdown, which waits for those.
type Lot struct {
	config Config
	port   *socknotify.Port[*spot]
	wheel  *wheel.Wheel[*spot]
	start  time.Time
	spots  table
	crew   crew
	watch  watch
	armers sync.Pool
	sweep  sweeper
	stats  counters

	// open counts what must end before the port may be closed: the lot itself, and each connection that is
	// parked or whose function runs.
	open    atomic.Int64
	closing atomic.Bool
	once    sync.Once
	ended   chan struct{}
}

// tick is the resolution of idle time-outs.
const tick = 100 * time.Millisecond

// New makes a lot. It must be closed, by Close or Shutdown. The error is socknotify.ErrInvalid for a limit below
// 0, or that of socknotify.New.
func New(config Config) (*Lot, error) {
	if config.IdleTimeout < 0 || config.MaxRunning < 0 {
		return nil, fmt.Errorf("park: new: %w: a negative limit", socknotify.ErrInvalid)
	}
	port, err := socknotify.New[*spot](socknotify.WithBackend(config.Backend))
	if err != nil {
		return nil, fmt.Errorf("park: new: %w", err)
	}
	l := &Lot{config: config, port: port, start: time.Now(), ended: make(chan struct{})}
	l.wheel = wheel.New(tick, func(s *spot) *wheel.Timer[*spot] { return &s.timer }, l.expire)
	l.armers.New = func() any { return newArmer(l) }
	l.open.Store(1)
	l.hire()
	return l, nil
}

// A Key is what a lot's port knows a connection by. It tells nothing.
type Key = *spot

// Port is the lot's port, for those who observe it, such as a page of package debug. It is the lot's to use
// and to close.
func (l *Lot) Port() *socknotify.Port[Key] { return l.port }

// Shutdown closes the lot: no connection can be parked any more, those that are parked are closed, and their
// functions run, for which Read fails with net.ErrClosed. It waits until every function has returned, or for
// the context, whose cause is then the error. A nil context is socknotify.ErrInvalid, and nothing is done.
func (l *Lot) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("park: shutdown: %w: a nil context", socknotify.ErrInvalid)
	}
	l.Close()
	select {
	case <-l.ended:
		l.crew.gone.Wait()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close is Shutdown that does not wait. Functions that run go on; the lot's port is closed when the last of
// them has returned.
func (l *Lot) Close() error {
	if l.closing.Swap(true) {
		return nil
	}
	l.sweep.stop()
	l.spots.all(func(s *spot) { l.dispatch(s, evicted) })
	l.leave()
	return nil
}

// enter counts a connection in. Counting comes before looking, as Close looks at the count after it has set
// closing.
func (l *Lot) enter() bool {
	l.open.Add(1)
	if l.closing.Load() {
		l.leave()
		return false
	}
	return true
}

func (l *Lot) leave() {
	if l.open.Add(-1) == 0 {
		l.once.Do(l.end) // the lot's own share was given back by Close
	}
}

func (l *Lot) end() {
	l.wheel.Close()
	l.port.Close()
	close(l.ended)
}

// ErrClosed says that the lot is closed. It is net.ErrClosed to errors.Is.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string        { return "park: the lot is closed" }
func (closedError) Is(target error) bool { return target == net.ErrClosed }
