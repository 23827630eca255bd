package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/proc"
	"github.com/socknotify/socknotify/bench/internal/stat"
)

// An observer is a way to observe a server.
type observer struct {
	name    string
	mounted bool   // there is a debug page
	ask     string // path that is requested once in a window; "" is none
}

// observers returns the observers that are measured. An open page sends the request of app.js.
func observers() []observer {
	return []observer{
		{name: "debug page mounted", mounted: true},
		{name: "debug page open", mounted: true,
			ask: contend.PagePath + "view?port=echo&q=&state=&sort=socket&order=asc&offset=0&limit=50&after=0"},
		{name: "scraped", ask: contend.ScrapePath},
	}
}

// Watched returns the parameters: as fast as answers come; at a moderate rate, at which the system calls of an observer
// weigh more; and with next to nothing to do, where each observation wakes the server. At the moderate rate twenty
// requests are sent at a time: with single ones, the number of wake-ups of a server varies by more than an observer adds.
func Watched() []param.Params {
	return []param.Params{
		{Connections: 100, Size: 64, Cores: 1},
		{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 1},
		{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 2},
		{Connections: 100, Size: 64, Rate: 50, Cores: 2},
	}
}

// A Share is the ratio of a figure with an observer to the figure without: the median of all rounds, and the quartiles.
type Share struct {
	Median, Lower, Upper float64
}

func shareOf(ratios []float64) Share {
	return Share{stat.Median(ratios), stat.Quantile(ratios, .25), stat.Quantile(ratios, .75)}
}

// A WatchedRecord is the result for one observer with some parameters.
type WatchedRecord struct {
	Params   param.Params `json:"params"`
	Backend  string       `json:"backend"`
	Way      string       `json:"way"`
	Rounds   int          `json:"rounds"`
	Syscalls Share        `json:"syscalls_ratio"` // per request
	CPU      Share        `json:"cpu_ratio"`      // per request
	// The figures without an observer: per request, and requests per second.
	PlainSyscalls float64 `json:"plain_syscalls"`
	PlainCPU      float64 `json:"plain_cpu_ns"`
	PlainRate     float64 `json:"plain_rate"`
}

// More returns how many system calls per second the observer costs.
func (r *WatchedRecord) More() float64 {
	return (r.Syscalls.Median - 1) * r.PlainSyscalls * r.PlainRate
}

// noObserver is the name of the windows without an observer, which are compared with each other.
const noObserver = "none"

// A watchSample has the figures of one window.
type watchSample struct{ syscalls, cpu, rate float64 }

// RunWatched measures what observers cost an echo server. The server and the load on it run all the time. Each window
// with an observer is compared with a window without one before and after it. The windows are short and alternate,
// because the machine changes over time. If the context is done, the results so far are returned with the error.
func (e *Env) RunWatched(ctx context.Context, p param.Params, backend string) ([]WatchedRecord, error) {
	g, err := contend.Find(contend.Watched, contend.Socknotify+backend)
	if err != nil {
		return nil, err
	}
	c := e.golang(g)
	s, err := e.start(ctx, &c, p)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var web string
	s.addr, web, _ = strings.Cut(s.addr, " ")
	v := &watch{scene: s, web: "http://" + web, seen: map[string][]watchSample{}, before: map[string][]int{}}
	if v.calls, err = proc.CountCalls(s.server.Pid()); err != nil {
		return nil, fmt.Errorf("system calls cannot be counted: %w", err)
	}
	defer v.calls.Close()
	if err := s.load(ctx, p); err != nil {
		return nil, err
	}
	if err := s.warm(ctx, p); err != nil {
		return nil, err
	}
	err = v.rounds(ctx, p)
	if len(v.seen) < len(observers()) {
		return nil, err
	}
	return e.watchedRecords(p, backend, v.plain, v.seen, v.before), err
}

// WatchedTakes returns how long RunWatched takes.
func (e *Env) WatchedTakes() time.Duration {
	return e.Warm + time.Duration(e.Rounds*len(observers()))*(2*e.Window+settling)
}

// settling is a pause after mounting and unmounting.
const settling = 50 * time.Millisecond

// A watch is the measurement of one server.
type watch struct {
	*scene
	web   string
	calls *proc.Calls
	plain []watchSample
	seen  map[string][]watchSample
	// before has, for each of seen, the index of the window of plain before it.
	before map[string][]int
}

func (v *watch) rounds(ctx context.Context, p param.Params) error {
	if err := v.measureWindow(ctx, "", &v.plain); err != nil {
		return err
	}
	start, total := time.Now(), v.e.WatchedTakes()
	for round := range v.e.Rounds {
		for _, w := range observers() {
			v.e.Progress.say(fmt.Sprintf("watched %v: round %d of %d, %s", p, round+1, v.e.Rounds, w.name), max(time.Second, total-time.Since(start)))
			got := v.seen[w.name]
			if err := v.observe(ctx, w, &got); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			n := len(v.plain) - 1
			if err := v.measureWindow(ctx, "", &v.plain); err != nil {
				return err
			}
			v.seen[w.name], v.before[w.name] = got, append(v.before[w.name], n)
		}
	}
	return nil
}

func (e *Env) watchedRecords(p param.Params, backend string, plain []watchSample, seen map[string][]watchSample, before map[string][]int) []WatchedRecord {
	syscalls := func(s watchSample) float64 { return s.syscalls }
	cpu := func(s watchSample) float64 { return s.cpu }
	rate := func(s watchSample) float64 { return s.rate }
	middle := func(of func(watchSample) float64) float64 {
		var all []float64
		for _, s := range plain {
			all = append(all, of(s))
		}
		return stat.Median(all)
	}
	record := func(name string, got []watchSample, at []int) WatchedRecord {
		ratios := func(of func(watchSample) float64) Share {
			var pairs []stat.Pair
			for i, s := range got {
				pairs = append(pairs, stat.Pair{Before: of(plain[at[i]]), Value: of(s), After: of(plain[at[i]+1])})
			}
			return shareOf(stat.Ratios(pairs))
		}
		return WatchedRecord{
			Params: p, Backend: backend, Way: name, Rounds: len(got), Syscalls: ratios(syscalls), CPU: ratios(cpu),
			PlainSyscalls: middle(syscalls), PlainCPU: middle(cpu), PlainRate: middle(rate),
		}
	}
	// A window without an observer is compared with the two around it in the same way.
	own := WatchedRecord{
		Params: p, Backend: backend, Way: noObserver, PlainSyscalls: middle(syscalls), PlainCPU: middle(cpu), PlainRate: middle(rate),
	}
	var calls, times []float64
	for i := 1; i+1 < len(plain); i++ {
		for _, f := range []struct {
			of func(watchSample) float64
			to *[]float64
		}{{syscalls, &calls}, {cpu, &times}} {
			r, ok := stat.Pair{Before: f.of(plain[i-1]), Value: f.of(plain[i]), After: f.of(plain[i+1])}.Ratio()
			if ok {
				*f.to = append(*f.to, r)
			}
		}
	}
	own.Rounds, own.Syscalls, own.CPU = len(calls), shareOf(calls), shareOf(times)
	all := []WatchedRecord{own}
	for _, w := range observers() {
		all = append(all, record(w.name, seen[w.name], before[w.name]))
	}
	return all
}

// observe measures a window with an observer.
func (v *watch) observe(ctx context.Context, w observer, into *[]watchSample) (err error) {
	if w.mounted {
		if err := get(ctx, v.web+contend.MountPath); err != nil {
			return err
		}
		defer func() {
			if gone := get(ctx, v.web+contend.UnmountPath); err == nil {
				err = gone
			}
			if err == nil {
				err = sleep(ctx, settling/2)
			}
		}()
	}
	if w.ask != "" { // the first request costs more than later ones
		if err := get(ctx, v.web+w.ask); err != nil {
			return err
		}
	}
	if err := sleep(ctx, settling/2); err != nil {
		return err
	}
	return v.measureWindow(ctx, w.ask, into)
}

// measureWindow measures one window, in the middle of which a path is requested.
func (v *watch) measureWindow(ctx context.Context, ask string, into *[]watchSample) error {
	before, err := v.calls.Sum()
	if err != nil {
		return err
	}
	asked := make(chan error, 1)
	go func() {
		err := sleep(ctx, v.e.Window/2)
		if err == nil && ask != "" {
			err = get(ctx, v.web+ask)
		}
		asked <- err
	}()
	o, err := v.measure(ctx, v.e.Window)
	if err := errors.Join(err, <-asked); err != nil {
		return err
	}
	after, err := v.calls.Sum()
	if err != nil {
		return err
	}
	*into = append(*into, watchSample{syscalls: float64(after-before) / o.Ops, cpu: o.PerOp(), rate: o.Rate()})
	return nil
}

// get sends a request and discards the body of the response.
func get(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	return nil
}
