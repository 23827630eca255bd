package conformance

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/race"
	"github.com/socknotify/socknotify/overlapped"
)

// steady repeats its block, which must allocate nothing once it has been run a few times (C7, O12).
// Its statements are made ready before, so that only the calls themselves are repeated. With
// "workers" so many goroutines dequeue, and "taken" waits until one of them has dequeued something.
func (r *run) steady(a []string) {
	var steps []func()
	turn, stop := make(chan note), func() {}
	if len(a) > 0 {
		count := r.number(strings.TrimPrefix(a[0], "workers="))
		stop = r.env.workers(r.p(), count, 1, func(n note) { turn <- n })
	}
	r.steps = func(words []string) { steps = append(steps, r.step(words, turn)) }
	r.block(r.stmt.block)
	r.steps = nil
	round := func() {
		for _, step := range steps {
			step()
		}
	}
	for range 10 {
		round()
	}
	// The race detector allocates, and makes pools forget.
	if n := testing.AllocsPerRun(200, round); n != 0 && !race.Enabled {
		r.Errorf("%v allocations each time", n)
	}
	stop()
}

// step makes a statement ready. In place of a receive or a send that would block nothing happens.
func (r *run) step(words []string, turn <-chan note) func() {
	p := r.p()
	switch words[0] {
	case "post":
		k, data := r.key(words[1]), uintptr(r.number(words[2]))
		return func() { r.must(p.Post(k, data)) }
	case "send":
		s, b := r.socket(words[1]), r.text(words[2:])
		return func() { s.Send(b) }
	case "receive":
		s, b := r.socket(words[1]), make([]byte, r.number(words[2]))
		return func() { s.Recv(b) }
	case "put":
		o, pool := r.op(words[1]), r.pools[words[2]]
		return func() { pool.Put(o.Buffer()) }
	case "taken":
		return func() { <-turn }
	}
	return r.stepCall(lists(words, ";"))
}

// stepCall makes a call ready, which may have "dequeue entries timeout -> any 3", and is then
// followed by others that only dequeue until so many have come.
func (r *run) stepCall(parts [][]string) func() {
	if len(parts) == 1 && isOperation(parts[0][0]) {
		a := r.action(parts[0])
		return func() { r.must(a.start()) }
	}
	b, count, timeout, failure := r.batch(parts), 0, time.Duration(0), error(nil)
	var buf []note
	if what, want := outcome(b.dequeue); what != nil {
		buf, timeout = make([]note, r.number(what[1])), r.timeout(what[2])
		if want[0] == "any" {
			count, timeout = r.number(want[1]), limit
		} else {
			failure = errorNames()[want[0]]
		}
	}
	return func() {
		var got int
		var err error
		if b.ops != nil {
			got, err = overlapped.Process(b.p, b.ops, buf, timeout)
		} else {
			got, err = b.p.Process(b.regs, buf, timeout)
		}
		for err == nil && got < count {
			var n int
			n, err = b.p.Process(nil, buf, timeout)
			got += n
		}
		if got != count || !errors.Is(err, failure) {
			r.Fatalf("Process = %d, %v; want %d, %v", got, err, count, failure)
		}
		for i := range b.regs {
			r.must(b.regs[i].Result)
		}
		for i := range b.ops {
			r.must(b.ops[i].Result)
		}
	}
}
