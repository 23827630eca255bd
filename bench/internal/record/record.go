// Package record has the results of a run, and writes them as tables, JSON and plots.
package record

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/stat"
)

// A Record is the result of one contender in a workload with some parameters. Figures that were not measured are nil.
type Record struct {
	Workload  string       `json:"workload"`
	Params    param.Params `json:"params"`
	Contender string       `json:"contender"`
	// Reference is the contender to which ratios are. It is measured before and after each sample.
	Reference string `json:"reference,omitempty"`
	Rounds    int    `json:"rounds"` // samples

	CPURatio   *float64 `json:"cpu_ratio"`                    // CPU time per request or event, to that of the reference
	NsPerEvent *float64 `json:"ns_per_event"`                 // CPU time
	TotalNs    *float64 `json:"total_ns_per_event,omitempty"` // with the cost of the byte, if NsPerEvent is without it
	Bytes      *float64 `json:"bytes_per_conn"`
	Syscalls   *float64 `json:"syscalls_per_req"`
	Switches   *float64 `json:"switches_per_req"` // of context
	Spread     *float64 `json:"spread"`           // between the quartiles of the ratios, or of the main figure

	Rate         *float64 `json:"rate_per_s,omitempty"`
	RateRatio    *float64 `json:"rate_ratio,omitempty"`
	P50          *float64 `json:"p50_ns,omitempty"` // latency
	P99          *float64 `json:"p99_ns,omitempty"`
	LatencyRatio *float64 `json:"latency_ratio,omitempty"` // of the medians

	// Samples are the figures of the rounds, in their order. The ratios are medians of them.
	Samples []Figures `json:"samples,omitempty"`

	// Missing is the reason if there is no result.
	Missing string `json:"missing,omitempty"`
}

// Figures are the figures of one sample. Those that do not apply are 0.
type Figures struct {
	CPURatio     float64 `json:"cpu_ratio,omitempty"`
	TotalRatio   float64 `json:"total_ratio,omitempty"` // of the CPU time with the cost of the byte
	Ns           float64 `json:"ns,omitempty"`
	RateRatio    float64 `json:"rate_ratio,omitempty"`
	LatencyRatio float64 `json:"latency_ratio,omitempty"`
}

// A Sample is a sample of a contender, between two of the reference.
type Sample struct {
	Before, Value, After param.Outcome
}

// Fill sets the figures from the samples, which are not empty.
func (r *Record) Fill(samples []Sample) {
	r.Rounds = len(samples)
	for _, s := range samples {
		r.Samples = append(r.Samples, s.figures())
	}
	if samples[0].Value.CPU > 0 {
		r.NsPerEvent = median(samples, param.Outcome.PerOp)
		r.CPURatio, r.Spread = ratio(samples, param.Outcome.PerOp)
		r.Switches = median(samples, func(o param.Outcome) float64 { return o.Switches / o.Ops })
		r.Rate = median(samples, param.Outcome.Rate)
		r.RateRatio, _ = ratio(samples, param.Outcome.Rate)
	}
	if samples[0].Value.Base > 0 {
		r.TotalNs = median(samples, param.Outcome.Total)
	}
	if samples[0].Value.P50 != nil {
		p50 := func(o param.Outcome) float64 { return *o.P50 }
		r.P50, r.P99 = median(samples, p50), median(samples, func(o param.Outcome) float64 { return *o.P99 })
		r.LatencyRatio, _ = ratio(samples, p50)
	}
	if samples[0].Value.Bytes != nil {
		values := each(samples, func(o param.Outcome) float64 { return *o.Bytes })
		m := stat.Median(values)
		r.Bytes, r.Spread = &m, stat.Spread(values)
	}
	for _, s := range samples {
		if s.Value.Syscalls != nil {
			r.Syscalls = s.Value.Syscalls
		}
	}
}

func (s Sample) figures() (f Figures) {
	of := func(value func(param.Outcome) float64) float64 {
		r, _ := stat.Pair{Before: value(s.Before), Value: value(s.Value), After: value(s.After)}.Ratio()
		return r
	}
	if s.Value.CPU > 0 {
		f = Figures{CPURatio: of(param.Outcome.PerOp), Ns: s.Value.PerOp(), RateRatio: of(param.Outcome.Rate)}
	}
	if s.Value.Base > 0 {
		f.TotalRatio = of(param.Outcome.Total)
	}
	if s.Value.P50 != nil && s.Before.P50 != nil && s.After.P50 != nil {
		f.LatencyRatio = of(func(o param.Outcome) float64 { return *o.P50 })
	}
	return f
}

func each(samples []Sample, f func(param.Outcome) float64) []float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, f(s.Value))
	}
	return values
}

func median(samples []Sample, f func(param.Outcome) float64) *float64 {
	m := stat.Median(each(samples, f))
	return &m
}

func ratio(samples []Sample, f func(param.Outcome) float64) (m, spread *float64) {
	var pairs []stat.Pair
	for _, s := range samples {
		pairs = append(pairs, stat.Pair{Before: f(s.Before), Value: f(s.Value), After: f(s.After)})
	}
	rs := stat.Ratios(pairs)
	if len(rs) == 0 {
		return nil, nil
	}
	r := stat.Median(rs)
	return &r, stat.Spread(rs)
}

// Read reads the output of WriteJSON.
func Read(r io.Reader) ([]Record, error) {
	var all []Record
	for d := json.NewDecoder(r); ; {
		var one Record
		switch err := d.Decode(&one); {
		case err == io.EOF:
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, one)
	}
}

// WriteJSON writes a line for each record.
func WriteJSON(w io.Writer, records []Record) error {
	enc := json.NewEncoder(w)
	for i := range records {
		if err := enc.Encode(&records[i]); err != nil {
			return fmt.Errorf("%s, %s: %w", records[i].Workload, records[i].Contender, err)
		}
	}
	return nil
}
