package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/stat"
)

// A way is one of looking at a server.
type way struct {
	name    string
	mounted bool          // there is a debug page
	ask     string        // path; "" is nothing
	every   time.Duration // from an answer to the next question
}

// ways are those that are measured. A page that is open asks as app.js does.
func (e *Env) ways() []way {
	page := contend.PagePath + "look?port=echo&q=&state=&sort=socket&order=asc&offset=0&limit=50&after=0"
	all := []way{
		{name: "debug page mounted", mounted: true},
		{name: "debug page open", mounted: true, ask: page, every: time.Second},
		{name: "scrape every second", ask: contend.ScrapePath, every: time.Second},
		{name: "scrape every 15 s", ask: contend.ScrapePath, every: 15 * time.Second},
	}
	if e.Quick {
		return all[:3]
	}
	return all
}

// Watched are the parameters: as fast as answers come; at a leisurely pace, where a system call that is not a
// request's counts for more; and with next to nothing to do, where each look wakes the server from its sleep
// and nothing hides what that costs.
func Watched() []param.Params {
	return []param.Params{
		{Connections: 100, Size: 64, Cores: 1},
		{Connections: 100, Size: 64, Rate: 2000, Cores: 1},
		{Connections: 100, Size: 64, Rate: 2000, Cores: 2},
		{Connections: 100, Size: 64, Rate: 50, Cores: 2},
	}
}

// A Share is what a figure becomes when the server is looked at, to what it is without: the median of all
// rounds, the quartiles, and how many rounds there were. Without tells the same of the server that nobody looks
// at to itself, a window later, which is what the machine adds.
type Share struct {
	Median, Lower, Upper float64
}

func shareOf(ratios []float64) Share {
	return Share{stat.Median(ratios), stat.Quantile(ratios, .25), stat.Quantile(ratios, .75)}
}

// A WatchedRecord is one way of looking at a server, with some parameters.
type WatchedRecord struct {
	Params   param.Params `json:"params"`
	Backend  string       `json:"backend"`
	Way      string       `json:"way"`
	Rounds   int          `json:"rounds"`
	Syscalls Share        `json:"syscalls_ratio"` // per request
	CPU      Share        `json:"cpu_ratio"`      // per request
	// What there was per request while nobody looked, and how many requests per second.
	PlainSyscalls float64 `json:"plain_syscalls"`
	PlainCPU      float64 `json:"plain_cpu_ns"`
	PlainRate     float64 `json:"plain_rate"`
}

// More is how many system calls a second looking costs.
func (r *WatchedRecord) More() float64 {
	return (r.Syscalls.Median - 1) * r.PlainSyscalls * r.PlainRate
}

// noWay is to not look, which is compared with itself.
const noWay = "nobody"

// A sight is one window.
type sight struct{ syscalls, cpu, rate float64 }

// RunWatched measures what looking at an echo server costs it. It is one server and one load throughout: a
// window in which nobody looks comes before and after each in which somebody does, and is what that is
// compared with.
func (e *Env) RunWatched(ctx context.Context, p param.Params, backend string) ([]WatchedRecord, error) {
	if e.Tracer.Name != "perf" {
		return nil, fmt.Errorf("system calls cannot be counted in passing: %s", e.Tracer.Why)
	}
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
	addr, web, _ := strings.Cut(s.addr, " ")
	s.addr, web = addr, "http://"+web
	if err := s.load(ctx, contend.Echo, p); err != nil {
		return nil, err
	}
	if err := s.warm(ctx, p); err != nil {
		return nil, err
	}
	var plain []sight
	seen := map[string][]sight{}
	before := map[string][]int{} // the window of plain that came before
	if err := s.see(ctx, e.Window, &plain); err != nil {
		return nil, err
	}
	for round := range e.Rounds {
		for _, w := range e.ways() {
			e.progress("watched %v: round %d of %d, %s", p, round+1, e.Rounds, w.name)
			got := seen[w.name]
			if err := s.seen(ctx, web, w, &got); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			seen[w.name], before[w.name] = got, append(before[w.name], len(plain)-1)
			if err := s.see(ctx, e.Window, &plain); err != nil {
				return nil, err
			}
		}
	}
	return e.watchedRecords(p, backend, plain, seen, before), nil
}

func (e *Env) watchedRecords(p param.Params, backend string, plain []sight, seen map[string][]sight, before map[string][]int) []WatchedRecord {
	syscalls := func(s sight) float64 { return s.syscalls }
	cpu := func(s sight) float64 { return s.cpu }
	rate := func(s sight) float64 { return s.rate }
	middle := func(of func(sight) float64) float64 {
		var all []float64
		for _, s := range plain {
			all = append(all, of(s))
		}
		return stat.Median(all)
	}
	record := func(name string, got []sight, at []int) WatchedRecord {
		ratios := func(of func(sight) float64) Share {
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
	// A window between two others is compared with them as those in which somebody looks are.
	own := WatchedRecord{
		Params: p, Backend: backend, Way: noWay, PlainSyscalls: middle(syscalls), PlainCPU: middle(cpu), PlainRate: middle(rate),
	}
	var calls, times []float64
	for i := 1; i+1 < len(plain); i++ {
		for _, f := range []struct {
			of func(sight) float64
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
	for _, w := range e.ways() {
		all = append(all, record(w.name, seen[w.name], before[w.name]))
	}
	return all
}

// seen measures a window in which somebody looks: at least one look, from beginning to end.
func (s *scene) seen(ctx context.Context, web string, w way, into *[]sight) (err error) {
	if w.mounted {
		if err := get(ctx, web+contend.MountPath); err != nil {
			return err
		}
		defer func() {
			if gone := get(ctx, web+contend.UnmountPath); err == nil {
				err = gone
			}
		}()
	}
	if w.ask != "" {
		looker, err := s.e.spawner.Start([]string{s.e.Self, "look", web + w.ask, w.every.String()}, s.e.loadCPUs(len(s.cpus)))
		if err != nil {
			return err
		}
		defer looker.Stop()
		if _, err := ready(ctx, looker); err != nil {
			return err
		}
	}
	if err := sleep(ctx, s.e.Warm); err != nil {
		return err
	}
	return s.see(ctx, max(s.e.Window, w.every), into)
}

// see measures one window.
func (s *scene) see(ctx context.Context, d time.Duration, into *[]sight) error {
	type counted struct {
		calls float64
		err   error
	}
	calls := make(chan counted, 1)
	go func() {
		n, err := s.e.Tracer.Count(ctx, s.server.Pid(), d, s.countersPath, s.counters.Sum)
		calls <- counted{n, err}
	}()
	o, err := s.measure(ctx, d)
	got := <-calls
	if err != nil {
		return err
	}
	if got.err != nil {
		return got.err
	}
	*into = append(*into, sight{syscalls: got.calls, cpu: o.PerOp(), rate: o.Rate()})
	return s.running()
}

// get asks for something that has no answer.
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
