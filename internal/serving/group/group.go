// Package group has what the members of a server have in common that serves connections without a
// listener of its own: how many there are, who they are, and how they end.
package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/metrics"
)

// The errors of package park with the same names.
var (
	ErrServerClosed error = serving.ClosedError("park: server closed")
	ErrMaxConns           = errors.New("park: too many connections")
	ErrHandshake    error = serving.TimeoutError("park: the TLS handshake takes too long")
)

// ErrGoexit is the cause of a member one of whose functions has called runtime.Goexit.
var ErrGoexit = errors.New("park: the handler called runtime.Goexit")

// A Group has members T, such as the streams of package stream, the lot L that parks them, which is
// a *park.Lot, and how they end. A member is reserved, added, removed and released, in this order;
// only its owner knows when.
type Group[T Member, L Lot] struct {
	Log        serving.Log
	Goroutines sync.WaitGroup // of the members

	Queued                      atomic.Int64
	Accepted, refused, rejected atomic.Uint64
	Idle, Slow, late            atomic.Uint64 // of Stats.TimedOut

	ending serving.Ending // over when open is 0
	Mu     sync.Mutex
	Lot    L    // made by the first Reserve, and not changed then
	shared bool // the lot may have others, and is not closed
	List   []T  // protected by Mu
	open   int  // members that were reserved and not released
}

// A Member has a place in the list of its group, which is protected by Group.Mu.
type Member interface{ Place() *int32 }

// A Lot is a *park.Lot.
type Lot interface {
	comparable
	Close() error
	Shutdown(context.Context) error
}

// Reserve counts a member, of at most so many unless that is 0. For the first one prepare returns
// the lot, and whether it may have others too; it is called with Mu locked. A nil error must be
// followed by Release.
func (g *Group[T, L]) Reserve(most int, prepare func() (lot L, shared bool, err error)) error {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	var none L
	switch {
	case g.ending.HasBegun():
		return ErrServerClosed
	case most > 0 && g.open >= most:
		g.refused.Add(1)
		return ErrMaxConns
	case g.Lot == none:
		lot, shared, err := prepare()
		if err != nil {
			return err
		}
		g.Lot, g.shared = lot, shared
	}
	g.open++
	return nil
}

// LogTo makes the log usable. Only the first call has an effect. The caller holds Mu.
func (g *Group[T, L]) LogTo(prefix, name string, logger *slog.Logger) {
	if g.Log.Logger == nil {
		g.Log.Prefix, g.Log.Name, g.Log.Logger = prefix, name, func() *slog.Logger { return logger }
	}
}

// Release ends what Reserve has begun.
func (g *Group[T, L]) Release() {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	g.open--
	g.ending.Left(g.open)
}

// Add adds a member to the list. It reports whether the group is closing, and may have missed it.
func (g *Group[T, L]) Add(t T) (closing bool) {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	*t.Place() = int32(len(g.List))
	g.List = append(g.List, t)
	return g.ending.HasBegun()
}

// Remove removes a member from the list. The caller holds Mu.
func (g *Group[T, L]) Remove(t T) {
	end, i := len(g.List)-1, *t.Place()
	last := g.List[end]
	*last.Place() = i
	g.List[i] = last
	clear(g.List[end:])
	g.List = g.List[:end]
}

// All returns the members in the list.
func (g *Group[T, L]) All() []T {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	return slices.Clone(g.List)
}

// Lots returns the lot, if there is one.
func (g *Group[T, L]) Lots() []L {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	var none L
	if g.Lot == none {
		return nil
	}
	return []L{g.Lot}
}

// Counts are counters of park.Stats.
type Counts struct {
	Conns                       int
	QueuedBytes                 int64
	Accepted, Refused, Rejected uint64
	Panics                      uint64 // of the lot and of the members
	TimedOut                    metrics.TimedOut
}

// Counts returns the counters. ofLot is the lot's number of panics, which may be of others if the
// lot is shared. The caller holds Mu.
func (g *Group[T, L]) Counts(ofLot uint64) Counts {
	c := Counts{Conns: g.open, QueuedBytes: g.Queued.Load(), Panics: g.Log.Panics(),
		Accepted: g.Accepted.Load(), Refused: g.refused.Load(), Rejected: g.rejected.Load(),
		TimedOut: metrics.TimedOut{Idle: g.Idle.Load(), Slow: g.Slow.Load(), Handshake: g.late.Load()}}
	if !g.shared {
		c.Panics += ofLot
	}
	return c
}

// stop makes Reserve fail. It reports whether there has been a member, and so a lot.
func (g *Group[T, L]) stop() bool {
	g.Mu.Lock()
	defer g.Mu.Unlock()
	g.ending.Begin(g.open)
	var none L
	return g.Lot != none
}

// HasEnded reports whether Close or Shutdown was called.
func (g *Group[T, L]) HasEnded() bool { return g.ending.HasBegun() }

// Close makes Reserve fail, and calls abort for all members in the list. It does not wait.
func (g *Group[T, L]) Close(abort func(T)) {
	if !g.stop() {
		return
	}
	for _, t := range g.All() {
		abort(t)
	}
	g.Log.Flush()
	if !g.shared {
		g.Lot.Close()
	}
}

// Shutdown makes Reserve fail, calls end for all members in the list, and waits until all are
// released. If ctx is done first, it calls abort for those that are left, and returns the cause.
func (g *Group[T, L]) Shutdown(ctx context.Context, end, abort func(T)) error {
	if ctx == nil {
		return fmt.Errorf("shutdown: %w: nil context", socknotify.ErrInvalid)
	}
	if !g.stop() {
		return nil
	}
	for _, t := range g.All() {
		end(t)
	}
	select {
	case <-g.ending.Over():
	case <-ctx.Done():
		g.Close(abort)
		return context.Cause(ctx)
	}
	g.Goroutines.Wait()
	g.Log.Flush()
	if g.shared {
		return nil
	}
	return g.Lot.Shutdown(ctx)
}

// ShakeHands performs the handshake of a connection, and counts a failure.
func (g *Group[T, L]) ShakeHands(t unwrap.TLSConn, timeout time.Duration) error {
	until := serving.Deadline(timeout)
	t.SetDeadline(until)
	err := t.HandshakeContext(context.Background())
	switch {
	case err == nil:
		return t.SetDeadline(time.Time{})
	case serving.TimedOut(err, until):
		g.late.Add(1)
		return ErrHandshake
	}
	g.rejected.Add(1)
	return err
}
