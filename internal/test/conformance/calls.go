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

// A batch is one call: its entries, and what it dequeues.
type batch struct {
	results []error // after the call
	wants   [][]string
	dequeue []string // the words of that part, if there is one
	// process is Process and ProcessContext with the entries. It sets results.
	process func(buf []note, timeout time.Duration) (int, error)
	context func(ctx context.Context, buf []note) (int, error)
}

// call makes one call: the registrations, and then "dequeue entries timeout", if that is among its
// parts.
func (r *run) call(words []string) {
	r.Helper()
	regs, b := r.registrations(lists(words, ";"))
	ops := make([]socknotify.Op, len(regs))
	for i := range regs {
		ops[i] = regs[i].Op
	}
	r.process(b)
	for i, err := range b.results {
		var of *socknotify.OpError
		if err == nil || err == errOld {
			continue
		}
		if !errors.As(err, &of) || of.Op != ops[i] || !strings.Contains(err.Error(), ops[i].String()) {
			r.Fatalf("Result of entry %d is %T, %v; want *OpError of %v", i, err, err, ops[i])
		}
	}
}

// registrations makes a batch of registrations of its parts.
func (r *run) registrations(parts [][]string) ([]reg, *batch) {
	p, b := r.p(), new(batch)
	var regs []reg
	for _, part := range parts {
		what, result := outcome(part)
		if len(what) == 0 {
			r.Fatalf("want a registration")
		}
		if what[0] == "dequeue" {
			b.dequeue = part
			continue
		}
		x := r.registration(what)
		x.Result = errOld
		regs, b.wants = append(regs, x), append(b.wants, result)
	}
	// A port keeps neither slice: what the caller writes to one afterwards means nothing (C5).
	finish := func(n int, err error) (int, error) {
		for i := range regs {
			b.results = append(b.results, regs[i].Result)
			regs[i] = reg{Key: "scribbled", Filter: out, Op: socknotify.OpRemove, Trigger: edge}
		}
		return n, err
	}
	b.process = func(buf []note, timeout time.Duration) (int, error) {
		return finish(p.Process(regs, buf, timeout))
	}
	b.context = func(ctx context.Context, buf []note) (int, error) {
		if len(regs) == 0 {
			return p.Wait(ctx, buf)
		}
		return finish(p.ProcessContext(ctx, regs, buf))
	}
	return regs, b
}

// A room is the entries of a call, with some behind them that the call must not touch.
func room(n int) []note {
	buf := make([]note, n+2)
	buf[n].Data, buf[n+1].Data = 77, 88
	return buf[:n]
}

// untouched checks what is behind the entries.
func (r *run) untouched(buf []note) {
	if behind := buf[len(buf):][:2]; behind[0].Data != 77 || behind[1].Data != 88 {
		r.Fatalf("the call has written behind its %d entries", len(buf))
	}
}

// process makes a call, and checks its results and what it has dequeued.
func (r *run) process(b *batch) {
	r.Helper()
	what, want := outcome(b.dequeue)
	var buf []note
	timeout, ctx := time.Duration(0), context.Context(nil)
	withContext := false
	if what != nil {
		if len(what) != 3 {
			r.Fatalf("want: dequeue entries timeout")
		}
		if n := r.number(what[1]); n > 0 {
			buf = room(n)
		}
		if ctx, withContext = r.contexts(what[2]); !withContext {
			timeout = r.timeout(what[2])
		}
		if timeout == forever && len(buf) > 0 {
			timeout = patience()
		}
	}
	begin := time.Now()
	var n int
	var err error
	if withContext {
		n, err = b.context(ctx, buf)
	} else {
		n, err = b.process(buf, timeout)
		r.notEarly(err, time.Since(begin), timeout)
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
		case !whole:
			r.result(i, result, b.wants[i])
		}
	}
}

// contexts returns the context of a name, where it is one.
func (r *run) contexts(name string) (context.Context, bool) {
	switch name {
	case "context":
		return r.Context(), true
	case "no-context":
		return nil, true
	case "canceled":
		ctx, cancel := context.WithCancelCause(r.Context())
		cancel(errCause)
		return ctx, true
	}
	return nil, false
}

// dequeued checks what a call has dequeued: notifications or an error; "any 3" keeps so many for
// the statements that follow; "some" keeps what came; "whatever" is anything. An error may follow
// the latter two.
func (r *run) dequeued(got []note, err error, want []string) {
	r.Helper()
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
	r.Helper()
	if kept := r.pending[r.port]; len(kept) > 0 {
		r.pending[r.port] = kept[1:]
		return kept[0]
	}
	if r.entries == 1 {
		return r.env.next(r.p())
	}
	buf := room(r.entries)
	n, err := r.p().Process(nil, buf, patience())
	if n == 0 || err != nil {
		r.overdue("Wait = %d, %v; want a notification", n, err)
	}
	r.untouched(buf)
	r.pending[r.port] = buf[1:n]
	return buf[0]
}

// nothingKept fails if a call has dequeued what no statement has looked at.
func (r *run) nothingKept() {
	r.Helper()
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
	count, entries, timeout := 1, 1, time.Duration(-1)
	var ctx context.Context
	w, all, starting := &waits{port: r.port}, false, false
	var begun time.Time // of a deadline
	for _, word := range a[1:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "entries":
			entries = r.number(value)
		case "timeout":
			timeout = r.timeout(value)
		case "cancelable":
			ctx, w.cancel = context.WithCancelCause(r.Context())
		case "deadline":
			var cancel context.CancelFunc
			timeout, begun = r.timeout(value), time.Now()
			ctx, cancel = context.WithTimeout(r.Context(), timeout)
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
		_, b := r.registrations(parts[1:])
		go func() {
			got := b.wait(p, ctx, entries, timeout, all)
			if !begun.IsZero() { // the deadline was set before the call began
				got.took = time.Since(begun)
			}
			w.ends <- got
		}()
	}
	w.limit = timeout
	r.parks[w.port] += count
	if w.brief = timeout >= 0 && timeout < time.Minute; w.brief {
		r.brief[w.port] += count
	}
	if r.brief[w.port] == 0 && !starting {
		r.parked(p, r.parks[w.port])
	}
}

// wait makes the call, or ranges over All.
func (b *batch) wait(p *port, ctx context.Context, entries int, timeout time.Duration, all bool) result {
	begin := time.Now()
	buf := make([]note, entries)
	var n int
	var err error
	switch {
	case all:
		buf = buf[:0]
		for got := range p.All(ctx) {
			buf = append(buf, got)
		}
		n = len(buf)
	case ctx != nil:
		n, err = b.context(ctx, buf)
	default:
		n, err = b.process(buf, timeout)
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
	got := r.get(w.ends)
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
	ctx, ok := r.contexts(what[0])
	if !ok {
		r.Fatalf("want a context")
	}
	expected := r.expected(want)
	var got []note
	for n := range r.p().All(ctx) {
		if got = append(got, n); len(got) >= len(expected) {
			break
		}
	}
	r.notes(got, expected)
}

// start starts operations: one by its own function, and several, or any with "dequeue", in a batch.
func (r *run) start(words []string) {
	r.Helper()
	p := r.p()
	parts := lists(words, ";")
	if len(parts) == 1 {
		what, want := outcome(words)
		q, made := r.request(what)
		err := r.startOne(p, what, q, made)
		if err == nil {
			r.ops[what[1]].owns(r.port, what, made)
		}
		r.errors(err, want)
		return
	}
	b := new(batch)
	var list []opEntry
	for _, part := range parts {
		what, want := outcome(part)
		if what[0] == "dequeue" {
			b.dequeue = part
			continue
		}
		q, made := r.request(what)
		if len(want) == 0 {
			r.ops[what[1]].owns(r.port, what, made)
		}
		list, b.wants = append(list, q), append(b.wants, want)
	}
	finish := func(n int, err error) (int, error) {
		for i := range list {
			b.results = append(b.results, list[i].Result)
		}
		return n, err
	}
	b.process = func(buf []note, timeout time.Duration) (int, error) {
		return finish(overlapped.Process(p, list, buf, timeout))
	}
	b.context = func(ctx context.Context, buf []note) (int, error) {
		return finish(overlapped.ProcessContext(ctx, p, list, buf))
	}
	r.process(b)
}
