package mercure

import (
	"slices"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/mercure/selector"
)

// A watched is a topic selector that clients of this node have. They share it.
type watched struct {
	*selector.Selector
	refs int // guarded by mercure.mu

	// The result for the last update that was dispatched; guarded by the mu of the updates' feed.
	seq uint64
	hit bool
}

// acquire returns the selectors with some texts. release must follow.
func (m *Server) acquire(texts []string) (all []*watched, err error) {
	for _, text := range texts {
		s, err := selector.Parse(text)
		if err != nil {
			m.release(all)
			return nil, err
		}
		m.mu.Lock()
		one := m.selectors[s.String()]
		if one == nil {
			// A client must not keep its request in memory.
			if s, err = selector.Parse(strings.Clone(text)); err != nil {
				panic(err) // it is the same text
			}
			one = &watched{Selector: s}
			m.selectors[s.String()] = one
		}
		one.refs++
		m.mu.Unlock()
		all = append(all, one)
	}
	return all, nil
}

func (m *Server) release(all []*watched) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range all {
		if w.refs--; w.refs == 0 {
			delete(m.selectors, w.String())
		}
	}
}

// matchesAny reports whether one of the selectors matches one of the topics.
func matchesAny(all []*watched, topics []string) bool {
	return slices.ContainsFunc(all, func(w *watched) bool {
		return slices.ContainsFunc(topics, w.Matches)
	})
}

// matchesUpdate is matchesAny for an update that is dispatched: each template is compared once, for
// all clients that have it. The caller holds the mu of the feed.
func matchesUpdate(all []*watched, u *update) bool {
	for _, w := range all {
		if !w.Template() {
			if slices.Contains(u.Topics, w.String()) {
				return true
			}
			continue
		}
		if w.seq != u.seq {
			w.seq, w.hit = u.seq, slices.ContainsFunc(u.Topics, w.Matches)
		}
		if w.hit {
			return true
		}
	}
	return false
}
