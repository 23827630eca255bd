package backendtest

import (
	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/system"
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
	// Among chooses the calls that a backend.Batcher is to make, and Made is called after it has.
	Among func(calls []backend.Exchange) []backend.Exchange
	Made  func(calls []backend.Exchange)
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
	added(changes)
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
	n := h.Poller.Poll(changes, ready)
	if h.After != nil && n > 0 {
		h.After(ready[:n])
	}
	return n
}

// hookedBatcher is a Hooked of a backend that makes calls together.
type hookedBatcher struct {
	*Hooked
	backend.Batcher
}

// Exchange makes the calls that the hook lets it make.
func (h hookedBatcher) Exchange(calls []backend.Exchange) {
	if h.Among != nil {
		calls = h.Among(calls)
	}
	h.Batcher.Exchange(calls)
	if h.Made != nil {
		h.Made(calls)
	}
}

// Least makes even one call go this way.
func (h hookedBatcher) Least() int { return 1 }

// Whole returns the Hooked with the other interfaces that the backend has.
func (h *Hooked) Whole() backend.Poller {
	b, batches := h.Poller.(backend.Batcher)
	f, reads := h.Poller.(backend.Files)
	r, receives := h.Poller.(backend.Receiver)
	switch {
	case receives:
		return struct {
			*Hooked
			backend.Receiver
		}{h, receiver{r}}
	case batches && reads:
		return struct {
			hookedBatcher
			backend.Files
		}{hookedBatcher{h, b}, f}
	case batches:
		return hookedBatcher{h, b}
	case reads:
		return struct {
			*Hooked
			backend.Files
		}{h, f}
	}
	return h
}

// On is an option of socknotify.New for a port on an open backend.
func On(poller backend.Poller, name string) func(*system.Options) {
	return func(o *system.Options) {
		o.Backend = &system.Backend{Name: name, Open: func() (backend.Poller, error) { return poller, nil }}
	}
}

// During runs f once, between the backend's next report and its delivery.
func (h *Hooked) During(f func()) {
	h.After = func([]backend.Ready) {
		h.After = nil
		f()
	}
}
