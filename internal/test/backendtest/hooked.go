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

// During runs f once, between the backend's next report and its delivery.
func (h *Hooked) During(f func()) {
	h.After = func([]backend.Ready) {
		h.After = nil
		f()
	}
}
