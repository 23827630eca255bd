package event

import (
	"fmt"
	"math"
	"testing"
)

// Topics of usual forms are spread evenly: no shard has more than its part and five standard deviations.
func TestShardsAreEven(t *testing.T) {
	const topics = 20_000
	for _, form := range []string{"%d", "user.%d", "orders.%06d", "tenant.7.room.%d.chat", "t.%x", "https://example.org/%d", "ü%d"} {
		for _, n := range []int{2, 3, 4, 5, 8, 16, 64} {
			counts := make([]int, n)
			for i := range topics {
				counts[ShardOf(fmt.Sprintf(form, i), n)]++
			}
			mean := float64(topics) / float64(n)
			for shard, count := range counts {
				if off := math.Abs(float64(count) - mean); off > 5*math.Sqrt(mean) {
					t.Errorf("%s over %d shards: shard %d has %d topics, want %.0f", form, n, shard, count, mean)
				}
			}
		}
	}
}

// Stored events depend on the shard of a topic, so it stays as it is.
func TestShardsStay(t *testing.T) {
	for _, c := range []struct {
		topic string
		n     int
		shard int
		in    string
	}{
		{"a", 1, 0, "push.d."},
		{"a", 4, 0, "push.s.0."},
		{"b", 4, 1, "push.s.1."},
		{"orders.42", 4, 2, "push.s.2."},
		{"orders.43", 16, 9, "push.s.9."},
		{ControlTopic, 16, 0, "push.s.0."},
		{MercureTopic, 16, 0, "push.s.0."},
		{MercureIDPrefix + "x", 16, 0, "push.s.0."},
	} {
		if got := ShardOf(c.topic, c.n); got != c.shard || StoredIn(got, c.n) != c.in {
			t.Errorf("%s of %d: shard %d, %s", c.topic, c.n, got, StoredIn(got, c.n))
		}
	}
}
