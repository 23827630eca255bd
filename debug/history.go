package debug

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/debugdata"
)

const (
	sampleEvery = time.Second
	keepSamples = 600
	// rateSamples is the number of samples over which a rate is computed.
	rateSamples = 5
)

// A ring holds the latest keepSamples of the samples that were added. Its methods may be called concurrently.
type ring[T any] struct {
	mu     sync.Mutex
	latest [keepSamples]T // by number modulo keepSamples
	n      uint64         // number of samples so far
}

// add adds the sample that of returns for its number.
func (r *ring[T]) add(of func(number uint64) T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest[r.n%keepSamples] = of(r.n)
	r.n++
}

// after returns the samples with a number of at least from.
func (r *ring[T]) after(from uint64) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n > keepSamples {
		from = max(from, r.n-keepSamples)
	}
	out := []T{}
	for ; from < r.n; from++ {
		out = append(out, r.latest[from%keepSamples])
	}
	return out
}

// back returns the nth of the latest samples, or the first if there are fewer.
func (r *ring[T]) back(nth uint64) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest[(r.n-min(nth, r.n))%keepSamples]
}

// A history holds the latest samples of a port.
type history struct {
	stop func() // stops observing the port
	ring[debugdata.Sample]
}

func newHistory(s source) *history {
	h := &history{stop: s.observe()}
	h.sample(s)
	return h
}

// sample adds a sample. It reports whether the port is open.
func (h *history) sample(s source) bool {
	st := s.status()
	h.add(func(number uint64) debugdata.Sample {
		return debugdata.Sample{Number: number, Time: st.Time, Counts: st.Counts}
	})
	return !st.Closed
}

// rates returns the rates between a sample of a few seconds ago and now.
func (h *history) rates(now *debugdata.Status) (r debugdata.Rates) {
	then := h.back(rateSamples)
	d := now.Time.Sub(then.Time).Seconds()
	if d < sampleEvery.Seconds()/2 {
		return r // too short for a rate
	}
	per := func(now, then uint64) float64 { return float64(now-then) / d }
	c := &now.Counts
	return debugdata.Rates{
		Notifications: per(c.Notifications, then.Notifications),
		Accepted:      per(c.Accepted, then.Accepted),
		Completions:   per(c.Completions, then.Completions),
		Removals:      per(c.Removals, then.Removals),
		Posts:         per(c.Posts, then.Posts),
		Wakeups:       per(c.Wakeups, then.Wakeups),
		Rearms:        per(c.Rearms, then.Rearms),
		FastEnables:   per(c.FastEnables, then.FastEnables),
		Stale:         per(c.Stale, then.Stale),
	}
}

func (h *Handler) servePorts(w http.ResponseWriter) {
	out := debugdata.Ports{Ports: []debugdata.PortName{}, Remote: h.guard.remote}
	for _, s := range h.ports() {
		st := s.status()
		out.Ports = append(out.Ports, debugdata.PortName{Name: s.name(), Backend: st.Backend, Closed: st.Closed})
	}
	reply(w, out)
}

func (h *Handler) serveStatus(w http.ResponseWriter, r *http.Request, s *mounted) {
	reply(w, h.status(s))
}

func (h *Handler) status(s *mounted) debugdata.Status {
	st := s.status()
	st.Rates = s.rates(&st)
	return st
}

func (h *Handler) serveHistory(w http.ResponseWriter, r *http.Request, s *mounted) {
	from, why := parseAfter(r)
	if why != "" {
		fail(w, http.StatusBadRequest, why)
		return
	}
	reply(w, debugdata.History{Port: s.name(), Samples: s.after(from)})
}

// parseAfter returns the number of the first sample that is requested.
func parseAfter(r *http.Request) (from uint64, why string) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, ""
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Sprintf("after=%q is not the number of a sample", text)
	}
	if n == math.MaxUint64 {
		return n, "" // there is no later sample
	}
	return n + 1, ""
}

// serveView sends everything that the page shows in one answer, because one request costs more system calls than
// the work on the answer.
func (h *Handler) serveView(w http.ResponseWriter, r *http.Request, s *mounted) {
	q, why := parseQuery(r)
	from, whyNot := parseAfter(r)
	if why = cmp.Or(why, whyNot); why != "" {
		fail(w, http.StatusBadRequest, why)
		return
	}
	found := s.query(r.Context(), q)
	if found == nil {
		return // the client has disconnected
	}
	reply(w, debugdata.View{
		Status: h.status(s), Registrations: *found, History: debugdata.History{Port: s.name(), Samples: s.after(from)},
	})
}
