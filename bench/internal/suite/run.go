package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/record"
)

// Run runs a workload with all its sets, and passes the records of each set to done. A set whose reference fails has no
// records; the error names it, and the other sets are run.
func (e *Env) Run(ctx context.Context, w *Workload, done func(Set, []record.Record)) error {
	var failed error
	contenders := e.Contenders(ctx, w)
	for _, set := range e.Sets(w) {
		records, err := e.runSet(ctx, w, set, contenders)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %v: %w", w.Name, set.Params, err))
		}
		done(set, records)
	}
	return failed
}

// Sets returns the sets of a workload that were chosen.
func (e *Env) Sets(w *Workload) []Set {
	return slices.DeleteFunc(w.Sets(e.Quick), func(s Set) bool { return !e.Wants(s.Params) })
}

// Wants reports whether parameters were chosen.
func (e *Env) Wants(p param.Params) bool { return strings.Contains(p.String()+" ", e.Only) }

// An entry is a contender in a set.
type entry struct {
	*Contender
	samples []record.Sample
	missing string
}

// runSet measures each contender once in each round, and the reference before and after it. A contender that fails is
// left out. Only a failure of the reference is an error.
func (e *Env) runSet(ctx context.Context, w *Workload, set Set, contenders []Contender) ([]record.Record, error) {
	p := set.Params
	entries := e.entries(p, contenders)
	if len(entries) == 0 {
		return nil, nil
	}
	ref := referenceOf(w, entries)
	if len(w.reference) > 0 && ref == nil {
		return e.records(w, p, entries, nil), nil
	}
	rounds := e.begin(w, set)
	defer e.plan.end()
	for round := range rounds {
		if err := e.round(ctx, w, p, ref, entries, round, rounds); err != nil {
			return nil, err
		}
	}
	return e.records(w, p, entries, ref), nil
}

// entries returns the contenders for the parameters, with the reason of those that cannot take part.
func (e *Env) entries(p param.Params, contenders []Contender) []*entry {
	var all []*entry
	for i := range contenders {
		if c := &contenders[i]; c.Missing != "" || c.Fits(p) {
			all = append(all, &entry{Contender: c, missing: e.without(c, p)})
		}
	}
	return all
}

// without returns why a contender cannot take part, or an empty string.
func (e *Env) without(c *Contender, p param.Params) string {
	if c.Missing != "" {
		return c.Missing
	}
	if need := uint64(max(2*p.Registered, p.Connections) + 100); need > e.Files {
		return fmt.Sprintf("needs %d open files, the limit is %d", need, e.Files)
	}
	return ""
}

func referenceOf(w *Workload, entries []*entry) *entry {
	for _, name := range w.reference {
		for _, en := range entries {
			if en.Name == name && en.missing == "" {
				return en
			}
		}
	}
	return nil
}

func (e *Env) round(ctx context.Context, w *Workload, p param.Params, ref *entry, entries []*entry, round, rounds int) error {
	sample := func(en *entry, trace bool) (param.Outcome, error) {
		e.progress("%s %v: round %d of %d, %s", w.Name, p, round+1, rounds, en.Name)
		defer e.plan.sampled()
		return w.sample(ctx, e, en.Contender, p, trace)
	}
	var refs []param.Outcome
	measureRef := func() error {
		if ref == nil {
			refs = append(refs, param.Outcome{})
			return nil
		}
		o, err := sample(ref, round == 0 && len(refs) == 0)
		if err != nil {
			return fmt.Errorf("the reference: %w", err)
		}
		refs = append(refs, o)
		return nil
	}
	if err := measureRef(); err != nil {
		return err
	}
	for _, en := range entries {
		if en == ref || en.missing != "" {
			continue
		}
		for retakes := e.retakes(); ; retakes-- {
			o, err := sample(en, round == 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				en.missing, en.samples = "failed: "+err.Error(), nil
				break
			}
			before := refs[len(refs)-1]
			if err := measureRef(); err != nil {
				return err
			}
			after := refs[len(refs)-1]
			if retakes == 0 || steady(before, after) && steadyBase(o) {
				en.samples = append(en.samples, record.Sample{Before: before, Value: o, After: after})
				break
			}
		}
	}
	if ref != nil {
		ref.samples = append(ref.samples, ownSamples(refs)...)
	}
	return nil
}

// retakes bounds how often a sample is taken again because the machine was not steady.
func (e *Env) retakes() int {
	if e.Quick || e.plan.late() {
		return 0
	}
	return 2
}

// steady reports whether the reference cost about the same before and after. If not, the machine has changed in between
// (other programs share its processor caches, for example), and the sample cannot be compared with either.
func steady(before, after param.Outcome) bool {
	if before.Ops == 0 || after.Ops == 0 {
		return true // no reference
	}
	return alike(before.PerOp(), after.PerOp())
}

// steadyBase reports whether the cost to be subtracted was about the same before and after the workload. With several
// threads it changes when the host moves the processors of a virtual machine nearer to each other or farther apart.
func steadyBase(o param.Outcome) bool { return o.BaseAfter == 0 || alike(o.Base, o.BaseAfter) }

func alike(a, b float64) bool { return max(a, b) <= 1.25*min(a, b) }

// ownSamples compares the reference with itself, which measures the noise.
func ownSamples(refs []param.Outcome) []record.Sample {
	if len(refs) < 3 {
		return []record.Sample{{Before: refs[0], Value: refs[0], After: refs[0]}}
	}
	var samples []record.Sample
	for i := 1; i+1 < len(refs); i++ {
		samples = append(samples, record.Sample{Before: refs[i-1], Value: refs[i], After: refs[i+1]})
	}
	// The first sample has the system calls.
	samples[0].Value.Syscalls = refs[0].Syscalls
	return samples
}

func (e *Env) records(w *Workload, p param.Params, entries []*entry, ref *entry) []record.Record {
	var records []record.Record
	for _, en := range entries {
		r := record.Record{Workload: w.Name, Params: p, Contender: en.Name, Missing: en.missing}
		if ref != nil {
			r.Reference = ref.Name
		}
		if len(en.samples) > 0 {
			r.Fill(en.samples)
		} else if r.Missing == "" {
			r.Missing = "no reference to compare it with"
		}
		records = append(records, r)
	}
	return records
}
