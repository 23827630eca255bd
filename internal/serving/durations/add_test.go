package durations

import (
	"math"
	"testing"
	"time"
)

func TestAdd(t *testing.T) {
	const longest = math.MaxInt64
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {1, 2, 3}, {longest, 0, longest}, {0, longest, longest},
		{longest - 1, 1, longest}, {longest, 1, longest}, {1, longest, longest}, {longest, longest, longest},
		{longest - 2, 1, longest - 1},
	} {
		if got := Add(c.a, c.b); got != c.want {
			t.Errorf("Add(%d, %d) = %d; want %d", c.a, c.b, got, c.want)
		}
	}
}
