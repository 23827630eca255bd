package conformance

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/socknotify/socknotify/internal/test/handles"
)

// processCounts are counts of the process. "since" names those that are compared.
var processCounts = map[string]func() int{
	"Descriptors": func() int { return len(handles.List()) },
	"Threads":     threads,
	"Heap":        heap,
}

// since keeps the counts of a port, and these of the process.
func (r *run) since(names []string) {
	before := make(map[string]int)
	st := reflect.ValueOf(r.p().Stats())
	for i := range st.NumField() {
		before[st.Type().Field(i).Name] = integer(st.Field(i))
	}
	for _, name := range names {
		before[name] = processCounts[name]()
	}
	r.before[r.port] = before
}

func integer(v reflect.Value) int {
	if v.CanInt() {
		return int(v.Int())
	}
	return int(v.Uint())
}

// count checks counts: a name, or the sum of several, and a value; with + before it, how much it
// grew since "since". The value may be a limit, or "rest": what workers have dequeued and no
// statement has named.
func (r *run) count(a []string) {
	st := reflect.ValueOf(r.p().Stats())
	for i := 0; i+1 < len(a); i += 2 {
		names, since := strings.CutPrefix(a[i], "+")
		got := 0
		for name := range strings.SplitSeq(names, "+") {
			if f := st.FieldByName(name); f.IsValid() {
				got += integer(f)
			} else if n := processCounts[name]; n != nil {
				got += n()
			} else {
				r.Fatalf("there is no count %s", name)
			}
			if since {
				got -= r.before[r.port][name]
			}
		}
		want := strings.TrimLeft(a[i+1], "<=>")
		n := 0
		if want == "rest" {
			n = r.tallies[r.port].rest()
		} else {
			n = r.number(want)
		}
		switch strings.TrimSuffix(a[i+1], want) {
		case "<=":
			n = min(n, got)
		case ">=":
			n = max(n, got)
		}
		if got != n {
			r.Fatalf("want %s %s, got %d", a[i], a[i+1], got)
		}
	}
}

// threads counts the threads that the runtime has made.
func threads() int {
	n, _ := runtime.ThreadCreateProfile(nil)
	return n
}

// heap counts the bytes that are reachable.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
