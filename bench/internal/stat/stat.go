// Package stat has the statistics of a report: medians, quartiles and ratios of pairs.
package stat

import "slices"

// Quantile returns the q-quantile, 0 to 1, of the values, interpolated between two of them. It is 0 for no values. The
// slice is not changed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + (at-float64(i))*(v[i+1]-v[i])
}

// Median returns the median of the values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Spread returns the distance between the quartiles, or nil for fewer than three values.
func Spread(values []float64) *float64 {
	if len(values) < 3 {
		return nil
	}
	s := Quantile(values, 0.75) - Quantile(values, 0.25)
	return &s
}

// A Pair is one measurement of a contender between two of the reference.
type Pair struct {
	Before, Value, After float64
}

// Ratio returns the value divided by the mean of the reference. It is not ok if the mean is not positive.
func (p Pair) Ratio() (r float64, ok bool) {
	mean := (p.Before + p.After) / 2
	if mean <= 0 {
		return 0, false
	}
	return p.Value / mean, true
}

// Ratios returns the ratios of the pairs that have one.
func Ratios(pairs []Pair) []float64 {
	var rs []float64
	for _, p := range pairs {
		if r, ok := p.Ratio(); ok {
			rs = append(rs, r)
		}
	}
	return rs
}
