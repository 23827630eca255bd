package backendtest

import (
	"sync"
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
			return counted(p), nil
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
	added(changes)
	return c.Poller.Poll(changes, ready)
}

// receiver notes from which handles the kernel receives.
type receiver struct{ backend.Receiver }

var receiving = struct {
	mu      sync.Mutex
	handles map[uintptr]bool
}{handles: make(map[uintptr]bool)}

func (r receiver) Receive(handle uintptr, to *backend.Receive) bool {
	ok := r.Receiver.Receive(handle, to)
	receiving.mu.Lock()
	defer receiving.mu.Unlock()
	receiving.handles[handle] = ok
	return ok
}

// added forgets what was noted of handles that a port begins to watch.
func added(changes []backend.Change) {
	for i := range changes {
		if changes[i].Action == backend.Add {
			NewSocket(changes[i].Handle)
		}
	}
}

// NewSocket forgets what Receiving says of an earlier socket that had the same handle.
func NewSocket(handle uintptr) {
	receiving.mu.Lock()
	defer receiving.mu.Unlock()
	delete(receiving.handles, handle)
}

// Receiving reports whether the latest receive that waited for a handle was one by the kernel, on any port with Counted or
// Hooked. The data of such a receive does not make the handle readable.
func Receiving(handle uintptr) bool {
	receiving.mu.Lock()
	defer receiving.mu.Unlock()
	return receiving.handles[handle]
}

// counted returns a Poller that counts and has what else the backend offers.
func counted(p backend.Poller) backend.Poller {
	c := &counter{Poller: p}
	b, batches := p.(backend.Batcher)
	f, reads := p.(backend.Files)
	r, receives := p.(backend.Receiver)
	switch {
	case receives:
		return struct {
			*counter
			backend.Receiver
		}{c, receiver{r}}
	case batches && reads:
		return struct {
			*counter
			backend.Batcher
			backend.Files
		}{c, b, f}
	case batches:
		return struct {
			*counter
			backend.Batcher
		}{c, b}
	case reads:
		return struct {
			*counter
			backend.Files
		}{c, f}
	}
	return c
}
