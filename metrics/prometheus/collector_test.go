package prometheus_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics/prometheus"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
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
	first.Process(nil, make([]socknotify.Notification[string], 1), 0)
	b := first.Backend()
	want := fmt.Sprintf(`
# HELP socknotify_posts_dequeued_total Posted completions dequeued.
# TYPE socknotify_posts_dequeued_total counter
socknotify_posts_dequeued_total{backend=%q,port="first"} 1
socknotify_posts_dequeued_total{backend=%q,port="second"} 0
# HELP socknotify_queued_entries Posts, removals and completions that wait to be dequeued.
# TYPE socknotify_queued_entries gauge
socknotify_queued_entries{backend=%q,port="first"} 1
socknotify_queued_entries{backend=%q,port="second"} 0
`, b, b, b, b)
	if err := testutil.CollectAndCompare(&c, strings.NewReader(want), "socknotify_posts_dequeued_total", "socknotify_queued_entries"); err != nil {
		t.Error(err)
	}
	c.Remove("second")
	first.Close() // the counters of a closed port can still be read
	if n := testutil.CollectAndCount(&c); n != reflect.TypeFor[socknotify.Stats]().NumField() {
		t.Errorf("%d metrics of one port", n)
	}
}

func TestNamesAndHelp(t *testing.T) {
	var c prometheus.Collector
	c.Add("p", newPort[int](t))
	c.AddServer("s", new(server.Server[int]))
	c.AddParkServer("l", new(park.Server))
	c.AddHTTPServer("h", new(park.HTTPServer))
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

// A label must be UTF-8, or the client library panics.
func TestNameOfBytes(t *testing.T) {
	var c prometheus.Collector
	p := newPort[int](t)
	c.Add("p\xff", p)
	want := fmt.Sprintf("# HELP socknotify_waiting_calls Calls that wait in the port.\n# TYPE socknotify_waiting_calls gauge\n"+
		"socknotify_waiting_calls{backend=%q,port=\"p\uFFFD\"} 0\n", p.Backend())
	if err := testutil.CollectAndCompare(&c, strings.NewReader(want), "socknotify_waiting_calls"); err != nil {
		t.Error(err)
	}
	c.Remove("p\xff")
	if n := testutil.CollectAndCount(&c); n != 0 {
		t.Errorf("%d metrics of a removed port", n)
	}
}
