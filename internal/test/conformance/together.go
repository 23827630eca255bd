package conformance

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/socknotify/socknotify"
)

// together runs the statement's block once for each value of its loop, or without one each
// statement of the block, all at once. The statements must declare nothing and start no operation.
// With "one" exactly one of the errors that may be, is not.
func (r *run) together(a []string) {
	r.p() // which exists before they run
	type part struct {
		value string
		body  []*statement
	}
	var parts []part
	if len(a) > 2 {
		for _, v := range r.values(a[2:]) {
			parts = append(parts, part{v, r.stmt.block})
		}
	} else {
		for i := range r.stmt.block {
			parts = append(parts, part{"", r.stmt.block[i : i+1]})
		}
	}
	where, before := r.env.stmt, r.perhaps.Load()
	var all []<-chan error
	for _, p := range parts {
		one, e := *r, *r.env
		one.env, one.vars = &e, maps.Clone(r.vars)
		if p.value != "" {
			one.vars[a[0]] = p.value
		}
		ended := make(chan error, 1)
		go func() {
			err := errors.New("it has failed")
			defer func() { ended <- err }() // also where a failure ends the goroutine
			one.block(p.body)
			err = nil
		}()
		all = append(all, ended)
	}
	for _, ended := range all {
		r.env.stmt = where
		r.end(ended, "a statement")
	}
	if n := r.perhaps.Load() - before; len(a) == 1 && a[0] == "one" && n != 1 {
		r.Fatalf("%d of %d have succeeded", n, len(parts))
	}
}

// A tally counts what the workers of a port have dequeued.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
	stop   func()
}

// workers begins to dequeue in so many goroutines. Accepted connections are closed. To a single
// worker the posts of a key must come in the order of their data.
func (r *run) workers(a []string) {
	entries := 1
	if len(a) > 1 {
		entries = r.number(a[1][len("entries="):])
	}
	t := &tally{counts: make(map[string]int)}
	r.tallies[r.port] = t
	count, last := r.number(a[0]), make(map[any]uintptr)
	t.stop = r.env.workers(r.p(), count, entries, func(n note) {
		if count == 1 && n.Kind() == socknotify.KindPosted {
			if n.Data < last[n.Key] {
				r.Errorf("post %d of %v after %d", n.Data, n.Key, last[n.Key])
			}
			last[n.Key] = n.Data
		}
		s, _ := n.Accepted()
		if s != nil {
			s.Close()
		}
		t.mu.Lock()
		t.counts[tallied(keyName(n.Key), n.Events, n.Kind() == socknotify.KindPosted, n.Data, s != nil)]++
		t.mu.Unlock()
	})
}

// rest is how much was dequeued that no statement has named.
func (t *tally) rest() (all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.counts {
		all += n
	}
	return all
}

func tallied(key string, ev events, posted bool, data uintptr, accepted bool) string {
	return fmt.Sprintf("%s %v posted=%t data=%d accepted=%t", key, ev, posted, data, accepted)
}

// tallied names wanted notifications as the workers do, each with how often it is wanted.
func (r *run) tallied(words []string) map[string]int {
	want := make(map[string]int)
	for _, w := range r.expected(words) {
		want[tallied(w.key, w.events[0], w.posted, w.data, w.accepted)]++
	}
	return want
}

// served waits until workers have dequeued these notifications, and takes them off what they have
// dequeued.
func (r *run) served(a []string) {
	t, want := r.tallies[r.port], r.tallied(a)
	r.env.until("the workers have dequeued it", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		for name, n := range want {
			if t.counts[name] < n {
				return false
			}
		}
		for name, n := range want {
			t.counts[name] -= n
		}
		return true
	})
}

// endWorkers closes the port and waits for the workers. Nothing else may have come, but for these
// notifications, or whatever.
func (r *run) endWorkers(a []string) {
	t := r.tallies[r.port]
	t.stop()
	if len(a) == 1 && a[0] == "whatever" {
		return
	}
	allowed := r.tallied(a)
	for name, n := range t.counts {
		if n > 0 && allowed[name] == 0 {
			r.Fatalf("%d times too often: %s", n, name)
		}
	}
}
