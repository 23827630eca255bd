package backendtest

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/system"
	"github.com/socknotify/socknotify/internal/port"
)

// Counted is With, for a backend that counts how often it is polled; see Polls.
func Counted(name string) func(*system.Options) {
	return func(o *system.Options) {
		With(name)(o)
		if o.Backend == nil {
			return // socknotify.New says why
		}
		b := *o.Backend
		o.Backend = &system.Backend{Name: b.Name, Open: func() (backend.Poller, error) {
			p, err := b.Open()
			if err != nil {
				return nil, err
			}
			return &counter{Poller: p}, nil
		}}
	}
}

// Polls returns how often a port that was made with Counted has asked its backend for reports. A port that goes on
// asking while nothing can be dequeued spins. ok is false for any other port.
func Polls(p any) (n uint64, ok bool) {
	c, ok := port.Of(p).Core.Poller.(interface{ polls() uint64 })
	if !ok {
		return 0, false
	}
	return c.polls(), true
}

type counter struct {
	backend.Poller
	n atomic.Uint64
}

func (c *counter) polls() uint64 { return c.n.Load() }

func (c *counter) Poll(changes []backend.Change, ready []backend.Ready) int {
	if len(ready) > 0 {
		c.n.Add(1)
	}
	return c.Poller.Poll(changes, ready)
}
