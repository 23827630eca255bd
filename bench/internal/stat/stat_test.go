package stat_test

import (
	"math"
	"slices"
	"testing"

	"github.com/socknotify/socknotify/bench/internal/stat"
)

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, .5, 0},
		{[]float64{7}, .5, 7},
		{[]float64{7}, 1, 7},
		{[]float64{3, 1, 2}, .5, 2},
		{[]float64{4, 1, 3, 2}, .5, 2.5},
		{[]float64{1, 2, 3, 4, 5}, .25, 2},
		{[]float64{1, 2, 3, 4, 5}, 1, 5},
		{[]float64{10, 20}, .99, 19.9},
	} {
		before := slices.Clone(tt.values)
		if got := stat.Quantile(tt.values, tt.q); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("Quantile(%v, %v) = %v, want %v", tt.values, tt.q, got, tt.want)
		}
		if !slices.Equal(before, tt.values) {
			t.Errorf("Quantile changed %v to %v", before, tt.values)
		}
	}
}

func TestSpread(t *testing.T) {
	if s := stat.Spread([]float64{1, 9}); s != nil {
		t.Errorf("of two values = %v", *s)
	}
	if s := stat.Spread([]float64{5, 1, 2, 4, 3}); s == nil || *s != 2 {
		t.Errorf("= %v, want 2", s)
	}
}

func TestRatios(t *testing.T) {
	got := stat.Ratios([]stat.Pair{
		{Before: 2, Value: 6, After: 4},
		{Before: 0, Value: 6, After: 0}, // none
		{Before: -3, Value: 6, After: 1},
		{Before: 1, Value: -1, After: 1},
	})
	if !slices.Equal(got, []float64{2, -1}) {
		t.Errorf("= %v", got)
	}
}
