package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/bench/internal/contend"
)

// Run runs a workload with all its sets. A set whose reference fails ends; the error names it, and
// the other sets are run.
func (e *Env) Run(ctx context.Context, w *Workload) error {
	var failed error
	contenders := e.Contenders(ctx, w)
	for _, set := range w.Sets(e.Quick) {
		if !strings.Contains(set.Params.String()+" ", e.Only) {
			continue
		}
		err := e.runSet(ctx, w, set, contenders)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %v: %w", w.Name, set.Params, err))
		}
	}
	return failed
}

// runSet measures each contender once in each round, and the reference before and after it. A
// contender that fails is left out of the other rounds. Only a failure of the reference is an
// error.
func (e *Env) runSet(ctx context.Context, w *Workload, set Set, contenders []Contender) error {
	p := set.Params
	if need := uint64(max(2*p.Registered, p.Connections) + 100); need > e.Files {
		e.warn("%s %v is not measured: it needs %d open files, the limit is %d", w.Name, p, need, e.Files)
		return nil
	}
	var entries []Contender
	for _, c := range contenders {
		if c.Missing == "" {
			entries = append(entries, c)
		} else {
			e.warn("%s %v: %s is not measured: %s", w.Name, p, c.Name, c.Missing)
		}
	}
	if len(w.reference) > 0 && (len(entries) == 0 || !slices.Contains(w.reference, entries[0].Name)) {
		e.warn("%s %v: there is no reference", w.Name, p)
		return nil
	}
	rounds := max(1, int(math.Ceil(float64(e.Rounds)*set.Share-1e-9)))
	for round := range rounds {
		e.warn("%s %v: round %d of %d", w.Name, p, round+1, rounds)
		if err := e.round(ctx, w, p, entries, round == 0); err != nil {
			return err
		}
	}
	return nil
}

// round measures the entries once. The first one is the reference, if the workload has any.
func (e *Env) round(
	ctx context.Context, w *Workload, p contend.Params, entries []Contender, first bool,
) error {
	n := min(len(w.reference), 1) // references
	var refs []contend.Outcome
	measureRef := func() (err error) {
		var o contend.Outcome
		if n > 0 {
			if o, err = w.sample(ctx, e, &entries[0], p, first && len(refs) == 0); err != nil {
				return fmt.Errorf("the reference: %w", err)
			}
		}
		refs = append(refs, o)
		return nil
	}
	if err := measureRef(); err != nil {
		return err
	}
	for i := range entries[n:] {
		c := &entries[n+i]
		if c.Missing != "" {
			continue
		}
		for retakes := 2; ; retakes-- {
			o, err := w.sample(ctx, e, c, p, first)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				c.Missing = "failed: " + err.Error()
				e.warn("%s %v: %s %s", w.Name, p, c.Name, c.Missing)
				break
			}
			if err := measureRef(); err != nil {
				return err
			}
			before, after := refs[len(refs)-2], refs[len(refs)-1]
			if retakes == 0 || e.Quick || steady(before, after) && steadyBase(o) {
				e.report(w, p, c.Name, before, o, after)
				break
			}
		}
	}
	if n > 0 {
		e.reportReference(w, p, entries[0].Name, refs)
	}
	return nil
}

// reportReference compares the reference with itself, which measures the noise.
func (e *Env) reportReference(w *Workload, p contend.Params, name string, refs []contend.Outcome) {
	if len(refs) < 3 {
		e.report(w, p, name, refs[0], refs[0], refs[0])
		return
	}
	refs[1].Syscalls = cmp.Or(refs[1].Syscalls, refs[0].Syscalls)
	for i := 1; i+1 < len(refs); i++ {
		e.report(w, p, name, refs[i-1], refs[i], refs[i+1])
	}
}

// report prints a sample as a line of a Go benchmark, for benchstat. before and after are the
// reference's.
func (e *Env) report(w *Workload, p contend.Params, contender string, before, o, after contend.Outcome) {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s%s", strings.ToUpper(w.Name[:1]), w.Name[1:])
	for _, field := range strings.Fields(p.String() + " contender=" + clean.Replace(contender)) {
		b.WriteString("/" + field)
	}
	fmt.Fprintf(&b, " %.0f", max(1, o.Ops))
	value := func(v float64, unit string) { fmt.Fprintf(&b, " %.5g %s", v, unit) }
	ratio := func(unit string, of func(contend.Outcome) float64) {
		if before.Ops > 0 && after.Ops > 0 {
			value(2*of(o)/(of(before)+of(after)), unit)
		}
	}
	if o.CPU > 0 {
		value(o.PerOp(), "ns/op")
		ratio("cpu-ratio", contend.Outcome.PerOp)
		value(o.Rate(), "ops/s")
		ratio("rate-ratio", contend.Outcome.Rate)
		value(o.Switches/o.Ops, "switches/op")
	}
	if o.Base > 0 {
		value(o.Total(), "total-ns/op")
		ratio("total-ratio", contend.Outcome.Total)
	}
	if o.Syscalls != nil {
		value(*o.Syscalls, "syscalls/op")
	}
	if o.Bytes != nil {
		value(*o.Bytes, "B/conn")
	}
	fmt.Fprintln(e.Out, b.String())
}

// clean makes a contender's name a part of a benchmark's.
var clean = strings.NewReplacer("/", "-", " ", "-", ",", "", "=", "-")

// steady reports whether the reference cost about the same before and after. If not, the machine
// has changed in between (other programs share its processor caches, for example), and the sample
// cannot be compared with either.
func steady(before, after contend.Outcome) bool {
	if before.Ops == 0 || after.Ops == 0 {
		return true // no reference
	}
	return alike(before.PerOp(), after.PerOp())
}

// steadyBase reports whether the cost to be subtracted was about the same before and after the
// workload. With several threads it changes when the host moves the processors of a virtual machine
// nearer to each other or farther apart.
func steadyBase(o contend.Outcome) bool { return o.BaseAfter == 0 || alike(o.Base, o.BaseAfter) }

func alike(a, b float64) bool { return max(a, b) <= 1.25*min(a, b) }
