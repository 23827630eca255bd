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

// A way is one of looking at a server.
type way struct {
	name    string
	mounted bool   // there is a debug page
	ask     string // path, asked for once in a window; "" is nothing
}

// ways are those that are measured. A page that is open asks as app.js does.
func ways() []way {
	return []way{
		{name: "debug page mounted", mounted: true},
		{name: "debug page open", mounted: true,
			ask: contend.PagePath + "view?port=echo&q=&state=&sort=socket&order=asc&offset=0&limit=50&after=0"},
		{name: "scraped", ask: contend.ScrapePath},
	}
}

// Watched are the parameters: as fast as answers come; at a leisurely pace, where a system call that is not a
// request's counts for more; and with next to nothing to do, where each look wakes the server from its sleep
// and nothing hides what that costs. Requests at a pace are sent twenty at a time: how often a server wakes
// for single ones differs from second to second, and that is more than looking adds.
func Watched() []param.Params {
	return []param.Params{
		{Connections: 100, Size: 64, Cores: 1},
		{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 1},
		{Connections: 100, Size: 64, Burst: 20, Rate: 2000, Cores: 2},
		{Connections: 100, Size: 64, Rate: 50, Cores: 2},
	}
}

// A Share is what a figure becomes when the server is looked at, to what it is without: the median of all
// rounds, and the quartiles.
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
// compared with. Windows are short, and in turns, because the machine changes meanwhile. What there is when the
// context is done is returned with the error.
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
	v := &viewing{scene: s, web: "http://" + web, seen: map[string][]sight{}, before: map[string][]int{}}
	if v.calls, err = proc.CountCalls(s.server.Pid()); err != nil {
		return nil, fmt.Errorf("system calls cannot be counted: %w", err)
	}
	defer v.calls.Close()
	if err := s.load(ctx, contend.Echo, p); err != nil {
		return nil, err
	}
	if err := s.warm(ctx, p); err != nil {
		return nil, err
	}
	err = v.rounds(ctx, p)
	if len(v.seen) < len(ways()) {
		return nil, err
	}
	return e.watchedRecords(p, backend, v.plain, v.seen, v.before), err
}

// WatchedTakes is how long RunWatched takes.
func (e *Env) WatchedTakes() time.Duration {
	return e.Warm + time.Duration(e.Rounds*len(ways()))*(2*e.Window+settling)
}

// settling is for what mounting and unmounting has set off.
const settling = 50 * time.Millisecond

// A viewing is of one server.
type viewing struct {
	*scene
	web   string
	calls *proc.Calls
	plain []sight
	seen  map[string][]sight
	// before has, for each of seen, the window of plain that came before.
	before map[string][]int
}

func (v *viewing) rounds(ctx context.Context, p param.Params) error {
	if err := v.see(ctx, "", &v.plain); err != nil {
		return err
	}
	start, total := time.Now(), v.e.WatchedTakes()
	for round := range v.e.Rounds {
		for _, w := range ways() {
			v.e.Progress.say(fmt.Sprintf("watched %v: round %d of %d, %s", p, round+1, v.e.Rounds, w.name), max(time.Second, total-time.Since(start)))
			got := v.seen[w.name]
			if err := v.look(ctx, w, &got); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			n := len(v.plain) - 1
			if err := v.see(ctx, "", &v.plain); err != nil {
				return err
			}
			v.seen[w.name], v.before[w.name] = got, append(v.before[w.name], n)
		}
	}
	return nil
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
	for _, w := range ways() {
		all = append(all, record(w.name, seen[w.name], before[w.name]))
	}
	return all
}

// look measures a window in which somebody looks.
func (v *viewing) look(ctx context.Context, w way, into *[]sight) (err error) {
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
	if w.ask != "" { // the first time costs more, which is not what goes on
		if err := get(ctx, v.web+w.ask); err != nil {
			return err
		}
	}
	if err := sleep(ctx, settling/2); err != nil {
		return err
	}
	return v.see(ctx, w.ask, into)
}

// see measures one window, in the middle of which something is asked for.
func (v *viewing) see(ctx context.Context, ask string, into *[]sight) error {
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
	*into = append(*into, sight{syscalls: float64(after-before) / o.Ops, cpu: o.PerOp(), rate: o.Rate()})
	return nil
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
