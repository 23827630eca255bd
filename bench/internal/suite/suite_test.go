package suite

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/socknotify/socknotify/bench/internal/contend"
)

func TestSets(t *testing.T) {
	for _, w := range Workloads() {
		for _, quick := range []bool{false, true} {
			sets := w.Sets(quick)
			if len(sets) == 0 {
				t.Errorf("%s, quick %v: no parameters", w.Name, quick)
			}
			seen := map[contend.Params]bool{}
			for _, s := range sets {
				p := s.Params
				if seen[p] || s.Share <= 0 || s.Share > 1 || p.Cores < 1 || p.Active%2 != 0 || p.Active > p.Registered {
					t.Errorf("%s: %v, share %v", w.Name, p, s.Share)
				}
				seen[p] = true
			}
		}
	}
}

// lines returns the reported samples, each as the contender's name and the ratio of its CPU time.
func lines(e *Env) (all []string) {
	for line := range strings.Lines(e.Out.(*bytes.Buffer).String()) {
		fields := strings.Fields(line)
		_, name, _ := strings.Cut(fields[0], "contender=")
		all = append(all, name+" "+fields[slices.Index(fields, "cpu-ratio")-1])
	}
	return all
}

// env returns an Env without a C compiler.
func env(t *testing.T) *Env {
	t.Helper()
	t.Setenv("CC", "/nonexistent/cc")
	e, err := NewEnv(Options{
		Out: &bytes.Buffer{}, Warnings: &bytes.Buffer{}, Rounds: 2, Self: "self", Sources: fstest.MapFS{},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// Without a compiler another contender is the reference and first in the list, and the missing ones are named.
func TestContendersWithoutCompiler(t *testing.T) {
	e := env(t)
	for _, w := range Workloads() {
		contenders := e.Contenders(t.Context(), w)
		if strings.HasPrefix(contenders[0].Missing, redisProgram) {
			t.Logf("%s: not looked at: %s", w.Name, contenders[0].Missing)
			continue
		}
		if len(w.reference) > 0 && (contenders[0].Missing != "" || !slices.Contains(w.reference, contenders[0].Name)) {
			t.Errorf("%s: first is %q, %q", w.Name, contenders[0].Name, contenders[0].Missing)
		}
		seen := map[string]bool{}
		for _, c := range contenders {
			if seen[c.Name] {
				t.Errorf("%s: %s twice", w.Name, c.Name)
			}
			seen[c.Name] = true
			if strings.HasPrefix(c.Name, "c-epoll") && c.Missing != "no C compiler" {
				t.Errorf("%s: %s: %q", w.Name, c.Name, c.Missing)
			}
		}
	}
}

// fake returns a workload whose contenders cost what cost returns. order has the names of the samples taken.
func fake(order *[]string, cost func(name string, nth int) (float64, error)) *Workload {
	nth := map[string]int{}
	return &Workload{Name: "fake", reference: []string{"none", "ref"},
		sample: func(_ context.Context, _ *Env, c *Contender, _ contend.Params, _ bool) (contend.Outcome, error) {
			*order = append(*order, c.Name)
			nth[c.Name]++
			ns, err := cost(c.Name, nth[c.Name])
			return contend.Outcome{Ops: 1, CPU: ns, Elapsed: 1}, err
		}}
}

func TestRounds(t *testing.T) {
	var order []string
	w := fake(&order, func(name string, nth int) (float64, error) {
		switch {
		case name == "fails" && nth == 2:
			return 0, errors.New("the reason")
		case name == "ref":
			return 10, nil
		}
		return 20, nil
	})
	contenders := []Contender{{Name: "ref"}, {Name: "a"}, {Name: "absent", Missing: "why"}, {Name: "fails"}}
	e := env(t)
	if err := e.runSet(t.Context(), w, Set{Share: 1}, contenders); err != nil {
		t.Fatal(err)
	}
	if want := strings.Fields("ref a ref fails ref ref a ref fails"); !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if got, want := lines(e), []string{"a 2", "fails 2", "ref 1", "a 2", "ref 1"}; !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	said := e.Warnings.(*bytes.Buffer).String()
	for _, want := range []string{"absent is not measured: why", "fails failed: the reason"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// A sample is taken again if the reference shows that the machine has changed, up to a limit.
func TestRetakes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		refs  []float64
		order string
		ratio string
	}{
		{"steady", []float64{10, 11}, "ref a ref", "a 4"},
		{"changes once", []float64{10, 20, 22}, "ref a ref a ref", "a 2"},
		{"always changes", []float64{10, 20, 10, 20}, "ref a ref a ref a ref", "a 2.8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var order []string
			w := fake(&order, func(name string, nth int) (float64, error) {
				if name == "ref" {
					return tt.refs[nth-1], nil
				}
				return 42, nil
			})
			e := env(t)
			err := e.runSet(t.Context(), w, Set{Share: .5}, []Contender{{Name: "ref"}, {Name: "a"}})
			if err != nil || strings.Join(order, " ") != tt.order || lines(e)[0] != tt.ratio {
				t.Fatalf("%v, %v, %v; want %s, %s", err, order, lines(e), tt.order, tt.ratio)
			}
		})
	}
}

// A sample is also taken again if its base changed between the start and the end.
func TestRetakesOfBase(t *testing.T) {
	samples := 0
	w := &Workload{Name: "fake", reference: []string{"ref"},
		sample: func(_ context.Context, _ *Env, c *Contender, _ contend.Params, _ bool) (contend.Outcome, error) {
			o := contend.Outcome{Ops: 1, CPU: 30, Elapsed: 1, Base: 10}
			if c.Name == "a" {
				samples++
				o.BaseAfter = []float64{20, 12, 99}[samples-1]
			}
			return o, nil
		}}
	e := env(t)
	err := e.runSet(t.Context(), w, Set{Share: .5}, []Contender{{Name: "ref"}, {Name: "a"}})
	if err != nil || samples != 2 || lines(e)[0] != "a 0.95" {
		t.Fatalf("%v, %d samples, %v", err, samples, lines(e))
	}
}

// If the reference fails in one set, the other sets are run.
func TestReferenceFailsOnce(t *testing.T) {
	var order []string
	reason := errors.New("the reason")
	w := fake(&order, func(_ string, nth int) (float64, error) {
		if nth == 1 {
			return 0, reason
		}
		return 10, nil
	})
	one, two := Set{contend.Params{Size: 1}, 1}, Set{contend.Params{Size: 2}, 1}
	w.Name, w.sets = "core", []Set{one, two}
	w.reference = []string{"go-epoll"}
	e := env(t)
	err := e.Run(t.Context(), w)
	got := e.Out.(*bytes.Buffer).String()
	if !errors.Is(err, reason) || !strings.Contains(err.Error(), "size=1") || strings.Contains(got, "size=1") ||
		!strings.Contains(got, "size=2") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestTooFewFiles(t *testing.T) {
	e := env(t)
	e.Files = 1000
	var order []string
	w := fake(&order, func(string, int) (float64, error) { return 1, nil })
	set := Set{Params: contend.Params{Connections: 9000}, Share: 1}
	err := e.runSet(t.Context(), w, set, []Contender{{Name: "ref"}})
	if said := e.Warnings.(*bytes.Buffer).String(); err != nil || len(order) > 0 || !strings.Contains(said, "the limit is 1000") {
		t.Errorf("%v, %v, %s", err, order, said)
	}
}

// A contender and the load on it have different processors, if there are enough.
func TestProcessors(t *testing.T) {
	for _, tt := range []struct {
		cpus         []int
		cores        int
		server, load []int
	}{
		{[]int{0}, 1, []int{0}, []int{0}},
		{[]int{0, 1}, 1, []int{0}, []int{1}},
		{[]int{0, 1}, 2, []int{0, 1}, []int{0, 1}},
		{[]int{2, 3, 5, 7}, 2, []int{2, 3}, []int{5, 7}},
		{[]int{0, 1}, 16, []int{0, 1}, []int{0, 1}},
	} {
		e := &Env{cpus: tt.cpus}
		if s, l := e.serverCPUs(tt.cores), e.loadCPUs(tt.cores); !slices.Equal(s, tt.server) || !slices.Equal(l, tt.load) {
			t.Errorf("%v, %d: %v, %v", tt.cpus, tt.cores, s, l)
		}
	}
}
