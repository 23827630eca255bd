package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/system"
)

// A seam watches one socket with a backend, without a port.
type seam struct {
	k      backend.Poller
	handle uintptr
	token  uint64
}

const everything = backend.In | backend.Urgent | backend.Out | backend.PeerClosed

func watchSeam(b system.Backend) func(e *env) (watcher, error) {
	return func(e *env) (watcher, error) {
		k, err := b.Open()
		if err != nil {
			return nil, err
		}
		e.Cleanup(func() { k.Close() })
		return &seam{k: k}, nil
	}
}

var statuses = [...]string{"done", "absent", "present", "bad", "refused"}

func (s *seam) change(a backend.Action, m backend.Mask) error {
	s.token++
	kind, _ := s.k.Describe(s.handle) // if the handle is closed, the change fails
	c := []backend.Change{{
		Handle: s.handle, Token: s.token, Action: a, Interest: m, Listens: kind == backend.Listener,
	}}
	s.k.Poll(c, nil)
	if c[0].Status != backend.Done {
		return errors.New(statuses[c[0].Status])
	}
	return nil
}

func (s *seam) start(h uintptr) error {
	s.handle = h
	if err := s.change(backend.Add, everything); err != nil {
		return fmt.Errorf("add: %w", err)
	}
	s.gather(soon)
	return nil
}

// gather enables the handle again for the conditions that were not reported yet, if reports
// suppress it (Edges is false).
func (s *seam) gather(first time.Duration) string {
	var all backend.Mask
	ready := make([]backend.Ready, 8)
	gather(first, func() (any bool) {
		n := s.k.Poll(nil, ready)
		for _, r := range ready[:n] {
			if r.Token != s.token {
				continue
			}
			all |= r.Mask
			any = true
			if !s.k.Edges() && all&backend.Err == 0 {
				s.change(backend.Set, everything&^all|all&backend.Dead)
			}
		}
		if n == 0 {
			s.k.Park(time.Now().Add(time.Millisecond), func() bool { return false })
		}
		return any
	})
	text := ""
	for i, name := range []string{"in", "urgent", "out", "err", "dead", "peer-closed"} {
		if all&(1<<i) != 0 {
			text += " " + name
		}
	}
	if text == "" {
		return nothingReported
	}
	return text[1:]
}

func (s *seam) holds() string {
	if err := s.change(backend.Set, everything); err != nil {
		return err.Error()
	}
	return s.gather(soon)
}
