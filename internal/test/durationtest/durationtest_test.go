package durationtest

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

type inner struct {
	Wait time.Duration
}

type config struct {
	Name    string
	Timeout time.Duration
	Inner   inner
	Pointer *inner
	Nil     *inner
	N       int64
	private time.Duration
}

// Each field is set in runs of its own, in which no other is, and all are set in another run.
func TestLongest(t *testing.T) {
	var mu sync.Mutex
	var got [][3]time.Duration
	t.Run("runs", func(t *testing.T) {
		Longest(t, &config{Pointer: new(inner)}, func(t *testing.T, set func(*config)) {
			c := config{Timeout: 1, N: 2, private: 3}
			if set(&c); c.N != 2 || c.private != 3 || c.Nil != nil {
				t.Errorf("%+v", c)
			}
			if c.Pointer == nil {
				c.Pointer = new(inner)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, [3]time.Duration{c.Timeout, c.Inner.Wait, c.Pointer.Wait})
		})
	})
	const longest = math.MaxInt64
	for _, want := range [][3]time.Duration{
		{longest, 0, 0}, {longest - 1, 0, 0}, {1, longest, 0}, {1, longest - 1, 0},
		{1, 0, longest}, {1, 0, longest - 1}, {longest, longest, longest},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no run with %v", want)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d runs", len(got))
	}
}
