package facts

import (
	"errors"
	"fmt"
	"strings"
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

func openSeam(r system.Backend) (*seam, error) {
	k, err := r.Open()
	if err != nil {
		return nil, err
	}
	return &seam{k: k}, nil
}

func (s *seam) close() { s.k.Close() }

var statuses = [...]string{"done", "absent", "present", "bad", "refused"}

func (s *seam) change(a backend.Action, m backend.Mask) error {
	s.token++
	kind, _ := s.k.Describe(s.handle) // if the handle is closed, the change fails
	c := []backend.Change{{Handle: s.handle, Token: s.token, Action: a, Interest: m, Listens: kind == backend.Listener}}
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

// gather returns all conditions that are reported until none comes for a while. If reports suppress the handle (Edges is
// false), gather enables it again for the conditions that it has not reported yet.
func (s *seam) gather(first time.Duration) backend.Mask {
	var all backend.Mask
	ready := make([]backend.Ready, 8)
	for end, vain := time.Now().Add(first), 0; vain < looks || time.Now().Before(end); vain++ {
		n := s.k.Poll(nil, ready)
		for _, r := range ready[:n] {
			if r.Token != s.token {
				continue
			}
			all |= r.Mask
			end, vain = time.Now().Add(soon), 0
			if !s.k.Edges() && all&backend.Err == 0 {
				s.change(backend.Set, everything&^all|all&backend.Dead)
			}
		}
		if n == 0 {
			s.k.Park(time.Now().Add(time.Millisecond), func() bool { return false })
		}
	}
	return all
}

func (s *seam) reported(first time.Duration) (string, bool) {
	m := s.gather(first)
	return maskNames(m), m != 0
}

func (s *seam) holds() string {
	if err := s.change(backend.Set, everything); err != nil {
		return err.Error()
	}
	return maskNames(s.gather(soon))
}

func maskNames(m backend.Mask) string {
	var list []string
	for i, name := range []string{"in", "urgent", "out", "err", "dead", "peer-closed"} {
		if m&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	if list == nil {
		return nothing
	}
	return strings.Join(list, " ")
}
