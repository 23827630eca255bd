package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// errOld is in each Result before a call: a Result is overwritten, never read (C5).
var errOld = errors.New("from before the call")

// A batch is one call: its registrations or operations, and what it dequeues.
type batch struct {
	p       *port
	regs    []reg
	ops     []opEntry
	results []error // after the call
	wants   [][]string
	dequeue []string // the words of that part, if there is one
}

// A bound is what ends a call that waits: a timeout or a context.
type bound struct {
	timeout    time.Duration
	ctx        context.Context
	hasContext bool
}

// isOperation reports whether a verb is an operation of package overlapped.
func isOperation(verb string) bool { return 'A' <= verb[0] && verb[0] <= 'Z' }

// call makes one call: the registrations or the operations, and then "dequeue entries timeout", if
// that is among its parts. One operation without that is started by its own function.
func (r *run) call(words []string) {
	parts := lists(words, ";")
	if len(parts) == 1 && isOperation(words[0]) {
		r.start(words)
		return
	}
	b := r.batch(parts)
	r.process(b)
	for i, err := range b.results {
		var of *socknotify.OpError
		if err == nil || err == errOld || b.ops != nil {
			continue
		}
		op := b.regs[i].Op
		if !errors.As(err, &of) || of.Op != op || !strings.Contains(err.Error(), op.String()) {
			r.Fatalf("Result of entry %d is %T, %v; want *OpError of %v", i, err, err, op)
		}
	}
}

// start starts an operation by its own function.
func (r *run) start(words []string) {
	what, want := outcome(words)
	a := r.action(what)
	err := a.start()
	if err == nil {
		r.ops[what[1]].owns(r.port, what, a.buffer)
	}
	r.errors(err, want)
}

// startFiles starts operations on files, which batches have none of.
func (r *run) startFiles(words []string) {
	for _, part := range lists(words, ";") {
		r.start(part)
	}
}

// batch makes a call ready of its parts.
func (r *run) batch(parts [][]string) *batch {
	b := &batch{p: r.p()}
	for _, part := range parts {
		what, want := outcome(part)
		if len(what) == 0 {
			r.Fatalf("want a registration")
		}
		switch {
		case what[0] == "dequeue":
			b.dequeue = part
			continue
		case isOperation(what[0]):
			a := r.action(what)
			if len(want) == 0 {
				r.ops[what[1]].owns(r.port, what, a.buffer)
			}
			b.ops = append(b.ops, a.request)
		default:
			x := r.registration(what)
			x.Result = errOld
			b.regs = append(b.regs, x)
		}
		b.wants = append(b.wants, want)
	}
	return b
}

// process makes the call. A port keeps neither slice: what the caller writes to one afterwards
// means nothing (C5).
func (b *batch) process(buf []note, until bound) (int, error) {
	regs, ops := slices.Clone(b.regs), slices.Clone(b.ops)
	defer func() { // also where the call ends its goroutine
		for i := range regs {
			b.results = append(b.results, regs[i].Result)
			regs[i] = reg{Key: "scribbled", Filter: out, Op: socknotify.OpRemove, Trigger: edge}
		}
		for i := range ops {
			b.results = append(b.results, ops[i].Result)
			ops[i] = opEntry{}
		}
	}()
	switch {
	case ops != nil && until.hasContext:
		return overlapped.ProcessContext(until.ctx, b.p, ops, buf)
	case ops != nil:
		return overlapped.Process(b.p, ops, buf, until.timeout)
	case until.hasContext && regs == nil:
		return b.p.Wait(until.ctx, buf)
	case until.hasContext:
		return b.p.ProcessContext(until.ctx, regs, buf)
	}
	return b.p.Process(regs, buf, until.timeout)
}

// A room is the entries of a call, with some behind them that the call must not touch.
func room(n int) []note {
	buf := make([]note, n+2)
	buf[n].Data, buf[n+1].Data = 77, 88
	return buf[:n]
}

// untouched checks what is behind the entries.
func (e *env) untouched(buf []note) {
	if behind := buf[len(buf):][:2]; behind[0].Data != 77 || behind[1].Data != 88 {
		e.Fatalf("the call has written behind its %d entries", len(buf))
	}
}

// process makes a call, and checks its results and what it has dequeued.
func (r *run) process(b *batch) {
	what, want := outcome(b.dequeue)
	var buf []note
	var until bound
	if what != nil {
		if len(what) != 3 {
			r.Fatalf("want: dequeue entries timeout")
		}
		if n := r.number(what[1]); n > 0 {
			buf = room(n)
		}
		until = r.bound(what[2])
		if until.timeout == forever && len(buf) > 0 {
			until.timeout = patience()
		}
	}
	begin := time.Now()
	var n int
	var err error
	if slices.Equal(want, []string{"ends"}) {
		r.ends(func() { b.process(buf, until) })
		want = nil
	} else {
		n, err = b.process(buf, until)
	}
	if !until.hasContext {
		r.notEarly(err, time.Since(begin), until.timeout)
	}
	none := n == 0 && errors.Is(err, socknotify.ErrTimeout)
	whatever := len(want) > 0 && want[0] == "whatever" // nothing, for instance
	if tellsLate && none && len(want) > 0 && !whatever && errorNames()[want[0]] == nil {
		n, err = r.p().Process(nil, buf, patience())
	}
	if len(buf) > 0 {
		r.untouched(buf)
	}
	r.dequeued(buf[:n], err, want)
	whole := errors.Is(err, socknotify.ErrInvalid) || errors.Is(err, socknotify.ErrClosed)
	for i, result := range b.results {
		switch {
		case whole && result != errOld && !whatever: // otherwise the port was closed while it waited
			r.Fatalf("Result of entry %d of a call that failed as a whole: %v", i, result)
		case !whole && result == errOld:
			r.Fatalf("the Result of entry %d was not set", i)
		case !whole:
			r.errors(result, b.wants[i])
		}
	}
}

// bound parses a timeout, or the name of a context.
func (r *run) bound(name string) bound {
	switch name {
	case "context":
		return bound{ctx: r.Context(), hasContext: true}
	case "no-context":
		return bound{hasContext: true}
	case "canceled":
		ctx, cancel := context.WithCancelCause(r.Context())
		cancel(errCause)
		return bound{ctx: ctx, hasContext: true}
	}
	return bound{timeout: r.timeout(name)}
}

// dequeued checks what a call has dequeued: notifications or an error; "any 3" keeps so many for
// the statements that follow; "some" keeps what came; "whatever" is anything. An error may follow
// the latter two.
func (r *run) dequeued(got []note, err error, want []string) {
	switch {
	case len(want) > 0 && (want[0] == "whatever" || want[0] == "some"):
		if err != nil && !errors.Is(err, socknotify.ErrTimeout) {
			r.errors(err, want[1:])
		}
		if want[0] == "some" {
			r.pending[r.port] = append(r.pending[r.port], got...)
		}
		return
	case len(want) == 2 && want[0] == "any":
		if r.errors(err, nil); len(got) != r.number(want[1]) {
			r.Fatalf("want %s notifications, got %s", want[1], noteTexts(got))
		}
		r.pending[r.port] = append(r.pending[r.port], got...)
		return
	case len(want) > 0 && errorNames()[want[0]] != nil:
		r.errors(err, want)
		want = nil
	default:
		r.errors(err, nil)
	}
	r.notes(got, r.expected(want))
}

// next is the next notification: one that a call has kept, or one that a call waits for.
func (r *run) next() note {
	if kept := r.pending[r.port]; len(kept) > 0 {
		r.pending[r.port] = kept[1:]
		return kept[0]
	}
	got := r.some(r.p(), r.entries)
	if len(got) > 1 { // otherwise nothing is kept reachable
		r.pending[r.port] = got[1:]
	}
	return got[0]
}

// nothingKept fails if a call has dequeued what no statement has looked at.
func (r *run) nothingKept() {
	if kept := r.pending[r.port]; len(kept) > 0 {
		r.Fatalf("want nothing, got %s", noteTexts(kept))
	}
}

// within dequeues until each of some notifications has come, which must be among so many.
func (r *run) within(a []string) {
	most, left := r.number(a[0]), r.expected(a[1:])
	for range most {
		n := r.next()
		left = slices.DeleteFunc(left, func(w expected) bool { return w.is(n) })
		if len(left) == 0 {
			r.pending[r.port] = nil
			return
		}
	}
	r.Fatalf("%s did not come among %d notifications", texts(left), most)
}

// waits are calls that wait, under one name.
type waits struct {
	port   string
	ends   chan result
	brief  bool // they end by themselves
	limit  time.Duration
	cancel context.CancelCauseFunc
}

// wait starts calls that wait, and waits until they do.
func (r *run) wait(words []string) {
	p := r.p()
	parts := lists(words, ";")
	a := parts[0]
	count, entries, until := 1, 1, bound{timeout: forever}
	w, all, starting := &waits{port: r.port}, false, false
	var begun time.Time // of a deadline
	for _, word := range a[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "entries":
			entries = r.number(value)
		case "timeout":
			until.timeout = r.timeout(value)
		case "cancelable":
			until.hasContext = true
			until.ctx, w.cancel = context.WithCancelCause(r.Context())
		case "deadline":
			var cancel context.CancelFunc
			until, begun = bound{timeout: r.timeout(value), hasContext: true}, time.Now()
			until.ctx, cancel = context.WithTimeout(r.Context(), until.timeout)
			r.Cleanup(cancel)
		case "all":
			all = true
		case "starting":
			starting = true
		default:
			count = r.number(word)
		}
	}
	if known := r.waits[a[0]]; known != nil && len(known.ends) > 0 {
		r.Fatalf("a wait of %s has ended, and no statement says how", a[0])
	}
	w.ends = make(chan result, count)
	r.waits[a[0]] = w
	for range count {
		b := r.batch(parts[1:])
		go func() {
			got := b.wait(entries, until, all)
			if !begun.IsZero() { // the deadline was set before the call began
				got.took = time.Since(begun)
			}
			w.ends <- got
		}()
	}
	w.limit = until.timeout
	r.parks[w.port] += count
	if w.brief = w.limit >= 0 && w.limit < time.Minute; w.brief {
		r.brief[w.port] += count
	}
	if r.brief[w.port] == 0 && !starting {
		r.parked(p, r.parks[w.port])
	}
}

// wait makes the call, or ranges over All.
func (b *batch) wait(entries int, until bound, all bool) result {
	begin := time.Now()
	buf := make([]note, entries)
	var n int
	var err error
	if all {
		buf = buf[:0]
		for got := range b.p.All(until.ctx) {
			buf = append(buf, got)
		}
		n = len(buf)
	} else {
		n, err = b.process(buf, until)
	}
	for _, r := range b.results {
		if err == nil && r != nil {
			err = r
		}
	}
	return result{buf[:n], err, time.Since(begin)}
}

// woken takes the result of one call that has ended. Its block is repeated until one has.
func (r *run) woken(a []string) {
	w, body := r.group(a[0]), r.stmt.block
	if len(body) > 0 {
		r.env.until("a call that waits ends", func() bool { r.block(body); return len(w.ends) > 0 })
	}
	got := soonest(r.env, w.ends, "a wait")
	r.notEarly(got.err, got.took, w.limit)
	if r.parks[w.port]--; w.brief {
		r.brief[w.port]--
	}
	if len(a) < 2 || a[1] != "completed" && a[1] != "accepted" {
		r.dequeued(got.notes, got.err, a[1:])
		return
	}
	if r.errors(got.err, nil); len(got.notes) != 1 {
		r.Fatalf("got %s", noteTexts(got.notes))
	}
	if a[1] == "accepted" {
		r.env.accepted(got.notes[0], r.key(a[2]))
	} else {
		r.completion(got.notes[0], a[2:])
	}
}

// until repeats a block until a poll finds notifications, which must all be the one that is wanted;
// with "nothing" until it finds none, and with "success" until an error that may be, is not.
func (r *run) until(a []string) {
	p, body := r.p(), r.stmt.block
	switch a[0] {
	case "nothing":
		r.env.until("nothing comes", func() bool { r.block(body); return len(r.env.now(p)) == 0 })
		return
	case "success":
		before := r.perhaps.Load()
		r.env.until("it succeeds", func() bool { r.block(body); return r.perhaps.Load() > before })
		return
	}
	want := r.expected(a)
	if len(want) != 1 {
		r.Fatalf("want one notification")
	}
	r.env.until("the notification comes", func() bool {
		r.block(body)
		got := r.env.now(p)
		for _, n := range got {
			if !want[0].is(n) {
				r.Fatalf("want %s, got %s", texts(want), noteTexts(got))
			}
		}
		return len(got) > 0
	})
}

// all ranges over the notifications that come, and breaks after those that are wanted.
func (r *run) all(a []string) {
	what, want := outcome(a)
	until := r.bound(what[0])
	if !until.hasContext {
		r.Fatalf("want a context")
	}
	expected := r.expected(want)
	var got []note
	for n := range r.p().All(until.ctx) {
		if got = append(got, n); len(got) >= len(expected) {
			break
		}
	}
	r.notes(got, expected)
}
