package debug

import (
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

// sample adds a sample of a port. It reports whether the port is open.
func (m *mounted) sample() bool {
	st := m.status()
	m.history.add(func(number uint64) debugdata.Sample {
		return debugdata.Sample{Number: number, Time: st.Time, Counts: st.Counts}
	})
	return !st.Closed
}

// rates returns the rates between a sample of a few seconds ago and now.
func (m *mounted) rates(now *debugdata.Status) (r debugdata.Rates) {
	then := m.history.back(rateSamples)
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

// now returns the present status of a port with its rates.
func (m *mounted) now(*http.Request) (debugdata.Status, error) {
	st := m.status()
	st.Rates = m.rates(&st)
	return st, nil
}

// since returns the samples that a request asks for.
func (m *mounted) since(r *http.Request) (debugdata.History, error) {
	from, err := parseAfter(r, "after")
	if err != nil {
		return debugdata.History{}, err
	}
	return debugdata.History{Port: m.title, Samples: m.history.after(from)}, nil
}

// parseAfter returns the number of the first sample that is requested by a parameter.
func parseAfter(r *http.Request, parameter string) (from uint64, err error) {
	text := r.URL.Query().Get(parameter)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("%s=%q is not the number of a sample", parameter, text)
	}
	if n == math.MaxUint64 {
		return n, nil // there is no later sample
	}
	return n + 1, nil
}
