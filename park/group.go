package park

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/metrics"
)

// A group has what Streams and Tunnels have in common: their members T, which are *Stream or
// *Tunnel, the lot that parks them, and how they end. A member is reserved, added, removed and
// released, in this order; only its owner knows when.
type group[T member] struct {
	log        serving.Log
	goroutines sync.WaitGroup // of the members

	queued                      atomic.Int64
	accepted, refused, rejected atomic.Uint64
	idle, slow, late            atomic.Uint64 // of Stats.TimedOut

	ending serving.Ending // over when open is 0
	mu     sync.Mutex
	lot    *Lot // made by the first reserve, and not changed then
	shared bool // the lot may have others, and is not closed
	list   []T
	open   int // members that were reserved and not released
}

type member interface {
	place() *int32 // of the index in group.list; protected by group.mu
}

// reserve counts a member, of at most so many unless that is 0. For the first one prepare returns
// the lot that the program has set, or else the configuration for a new one. A nil error must be
// followed by release.
func (g *group[T]) reserve(most int, prepare func() (*Lot, Config, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ending.HasBegun():
		return ErrServerClosed
	case most > 0 && g.open >= most:
		g.refused.Add(1)
		return ErrMaxConns
	case g.lot == nil:
		if err := g.begin(prepare()); err != nil {
			return err
		}
	}
	g.open++
	return nil
}

// begin sets the lot. The caller holds g.mu.
func (g *group[T]) begin(lot *Lot, c Config, err error) error {
	g.shared = lot != nil
	if err == nil && lot == nil {
		lot, err = New(c)
	}
	if err != nil {
		return err
	}
	g.logTo(c.Name, c.Logger)
	g.lot = lot
	return nil
}

// logTo makes the log usable. Only the first call has an effect. The caller holds g.mu.
func (g *group[T]) logTo(name string, logger *slog.Logger) {
	if g.log.Logger == nil {
		g.log.Prefix, g.log.Name, g.log.Logger = "park: ", name, func() *slog.Logger { return logger }
	}
}

// release ends what reserve has begun.
func (g *group[T]) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open--
	g.ending.Left(g.open)
}

// add adds a member to the list. It reports whether the group is closing, and may have missed it.
func (g *group[T]) add(t T) (closing bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*t.place() = int32(len(g.list))
	g.list = append(g.list, t)
	return g.ending.HasBegun()
}

// remove removes a member from the list. The caller holds g.mu.
func (g *group[T]) remove(t T) {
	end, i := len(g.list)-1, *t.place()
	last := g.list[end]
	*last.place() = i
	g.list[i] = last
	clear(g.list[end:])
	g.list = g.list[:end]
}

// all returns the members in the list.
func (g *group[T]) all() []T {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.list)
}

// lots returns the lot, if there is one.
func (g *group[T]) lots() []*Lot {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lot == nil {
		return nil
	}
	return []*Lot{g.lot}
}

// stats returns the counters that all groups have. The caller holds g.mu.
func (g *group[T]) stats() (st Stats) {
	if g.lot != nil {
		st = g.lot.Stats()
	}
	if g.shared {
		st.Panics = 0 // they may be of others
	}
	st.CallTime = metrics.Histogram{}
	st.Conns, st.QueuedBytes, st.Panics = g.open, g.queued.Load(), st.Panics+g.log.Panics()
	st.Accepted, st.Refused, st.Rejected = g.accepted.Load(), g.refused.Load(), g.rejected.Load()
	st.TimedOut = metrics.TimedOut{Idle: g.idle.Load(), Slow: g.slow.Load(), Handshake: g.late.Load()}
	return st
}

// stop makes reserve fail. It reports whether there has been a member, and so a lot.
func (g *group[T]) stop() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending.Begin(g.open)
	return g.lot != nil
}

// close makes reserve fail, and calls abort for all members in the list. It does not wait.
func (g *group[T]) close(abort func(T)) {
	if !g.stop() {
		return
	}
	for _, t := range g.all() {
		abort(t)
	}
	g.log.Flush()
	if !g.shared {
		g.lot.Close()
	}
}

// shutdown makes reserve fail, calls end for all members in the list, and waits until all are
// released. If ctx is done first, it calls abort for those that are left, and returns the cause.
func (g *group[T]) shutdown(ctx context.Context, end, abort func(T)) error {
	if ctx == nil {
		return fmt.Errorf("park: shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	if !g.stop() {
		return nil
	}
	for _, t := range g.all() {
		end(t)
	}
	select {
	case <-g.ending.Over():
	case <-ctx.Done():
		g.close(abort)
		return context.Cause(ctx)
	}
	g.goroutines.Wait()
	g.log.Flush()
	if g.shared {
		return nil
	}
	return g.lot.Shutdown(ctx)
}

// guard is Log.Guard for a function that has no error.
func guard(log *serving.Log, conn net.Conn, f func()) error {
	return log.Guard(conn, func() error {
		f()
		return nil
	})
}

// shakeHands performs the handshake of a connection, and counts a failure.
func (g *group[T]) shakeHands(t unwrap.TLSConn, timeout time.Duration) error {
	until := deadline(timeout)
	t.SetDeadline(until)
	err := t.HandshakeContext(context.Background())
	switch {
	case err == nil:
		return t.SetDeadline(time.Time{})
	case timedOut(err, until):
		g.late.Add(1)
		return ErrHandshake
	}
	g.rejected.Add(1)
	return err
}
