package prometheus_test

import (
	"fmt"
	"log"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/prometheus"
)

func newPort[K comparable](t *testing.T) *socknotify.Port[K] {
	t.Helper()
	p, err := socknotify.New[K]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func TestCollector(t *testing.T) {
	var c prometheus.Collector
	first, second := newPort[string](t), newPort[int](t)
	c.Add("first", first)
	c.Add("second", second)
	first.Post("k", 1)
	first.Post("k", 2)
	first.Wait(make([]socknotify.Notification[string], 1), 0)
	b := first.Backend()
	want := fmt.Sprintf(`
# HELP socknotify_posts_dequeued_total Posted completions dequeued.
# TYPE socknotify_posts_dequeued_total counter
socknotify_posts_dequeued_total{backend=%q,port="first"} 1
socknotify_posts_dequeued_total{backend=%q,port="second"} 0
# HELP socknotify_queued Posts and removals that wait to be dequeued.
# TYPE socknotify_queued gauge
socknotify_queued{backend=%q,port="first"} 1
socknotify_queued{backend=%q,port="second"} 0
`, b, b, b, b)
	if err := testutil.CollectAndCompare(&c, strings.NewReader(want), "socknotify_posts_dequeued_total", "socknotify_queued"); err != nil {
		t.Error(err)
	}
	c.Remove("second")
	first.Close() // its counts can be read for as long as it is kept
	if n := testutil.CollectAndCount(&c); n != 13 {
		t.Errorf("%d metrics of one port", n)
	}
}

func TestNamesAndHelp(t *testing.T) {
	var c prometheus.Collector
	c.Add("p", newPort[int](t))
	problems, err := testutil.CollectAndLint(&c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if err := client.NewPedanticRegistry().Register(&c); err != nil {
		t.Error(err)
	}
}

func Example() {
	port, err := socknotify.New[int]()
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	var ports prometheus.Collector
	ports.Add("echo", port)

	registry := client.NewRegistry() // or the default one
	registry.MustRegister(&ports)
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(families[0].GetName(), families[0].GetHelp())
	// Output: socknotify_accepted_total Connections delivered by Accept, which are notifications too.
}
