package backendtest

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/system"
	"github.com/socknotify/socknotify/internal/kernel/port"
)

// Hooked is a backend with hooks between it and the port. Any hook may be nil.
type Hooked struct {
	backend.Poller
	// Before is called ahead of each Poll, and After with the reports, before the port has them.
	Before func(changes []backend.Change)
	After  func(ready []backend.Ready)
	// Refuse fails a change with the error it returns.
	Refuse func(c *backend.Change) error
	// PolledOne replaces PollOne.
	PolledOne func(handle uintptr) backend.Mask

	polls atomic.Uint64 // for reports
}

// PollOne is the backend's, unless PolledOne replaces it.
func (h *Hooked) PollOne(handle uintptr) backend.Mask {
	if h.PolledOne != nil {
		return h.PolledOne(handle)
	}
	return h.Poller.PollOne(handle)
}

// Poll calls the hooks around the backend's.
func (h *Hooked) Poll(changes []backend.Change, ready []backend.Ready) int {
	if h.Before != nil {
		h.Before(changes)
	}
	if h.Refuse != nil {
		for i := range changes {
			if err := h.Refuse(&changes[i]); err != nil {
				changes[i].Status, changes[i].Err = backend.Refused, err
			} else {
				h.Poller.Poll(changes[i:i+1], nil)
			}
		}
		changes = nil
	}
	if len(ready) > 0 {
		h.polls.Add(1)
	}
	n := h.Poller.Poll(changes, ready)
	if h.After != nil && n > 0 {
		h.After(ready[:n])
	}
	return n
}

// On is an option of socknotify.New for a port on an open backend.
func On(poller backend.Poller, name string) func(*system.Options) {
	return func(o *system.Options) {
		o.Backend = &system.Backend{Name: name, Open: func() (backend.Poller, error) { return poller, nil }}
	}
}

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
			return &Hooked{Poller: p}, nil
		}}
	}
}

// Polls returns how often a port that was made with Counted has asked its backend for reports. A
// port that goes on asking while nothing can be dequeued spins. ok is false for any other port.
func Polls(p any) (n uint64, ok bool) {
	h, ok := port.Of(p).Core.Poller.(*Hooked)
	if !ok {
		return 0, false
	}
	return h.polls.Load(), true
}

// During runs f once, between the backend's next report and its delivery.
func (h *Hooked) During(f func()) {
	h.After = func([]backend.Ready) {
		h.After = nil
		f()
	}
}
