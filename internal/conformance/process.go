package conformance

import (
	"context"
	"errors"
	"math"
	"runtime"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
)

// C1, C2, C3, C5 and C6: what one call does with its two slices.
var processChecks = []check{
	both("C1", "RegistersThenDequeues", registersThenDequeues),
	both("C1", "RegistersInOrder", registersInOrder),
	both("C1", "TakesNoMoreThanEntries", takesNoMoreThanEntries),
	both("C1", "WaitsForTheFirstOnly", waitsForTheFirstOnly),
	both("C2", "OnlyRegisters", onlyRegisters),
	both("C2", "OnlyDequeues", onlyDequeues),
	both("C2", "Nothing", neither),
	both("C2", "TimeoutWithoutEntries", timeoutWithoutEntries),
	both("C2", "WaitWithoutEntries", waitWithoutEntries),
	both("C3", "EachEntryItsResult", eachEntryItsResult),
	both("C3", "LongBatchWithFailures", longBatchWithFailures),
	both("C5", "ResultsAreOverwritten", resultsAreOverwritten),
	both("C5", "RegistrationsMayBeReused", registrationsMayBeReused),
	both("C5", "KeepsNeitherSlice", keepsNeitherSlice),
	both("C6", "EntriesActInTurn", entriesActInTurn),
	both("C6", "ManyTimesInOneCall", manyTimesInOneCall),
	both("C6", "CrossedCalls", crossedCalls),
}

func registersThenDequeues(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	regs, buf := []reg{enable(s, "k", in, level)}, make([]note, 4)
	n, err := p.Process(regs, buf, 0)
	if n != 1 || err != nil || regs[0].Result != nil {
		e.Fatalf("Process = %d, %v, Result %v; want the notification that its own registration made", n, err, regs[0].Result)
	}
	e.check(buf[0], "k", in)
	n, err = p.Process([]reg{remove(s)}, buf, 0)
	if n != 1 || err != nil {
		e.Fatalf("Process = %d, %v; want the EventRemove of its own removal", n, err)
	}
	e.check(buf[0], "k", gone)
}

func registersInOrder(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "a", in, level), remove(s), enable(s, "b", in, level), remove(s), enable(s, "c", in, level))
	var removed []any
	for range 2 {
		n := e.next(p)
		if n.Events == gone {
			removed = append(removed, n.Key)
		} else {
			e.check(n, "c", in)
		}
	}
	for len(removed) < 2 {
		if n := e.next(p); n.Events == gone {
			removed = append(removed, n.Key)
		}
	}
	if removed[0] != "a" || removed[1] != "b" {
		e.Errorf("removals in the order %v", removed)
	}
}

func takesNoMoreThanEntries(e *env) {
	const sockets = 10
	p := e.port()
	seen := map[any]bool{}
	for i := range sockets {
		s, _ := e.unix()
		e.do(p, enable(s, i, out, level|oneShot))
	}
	for _, room := range []int{3, 1, 4, 64} {
		// A fresh goroutine each, which cannot profit from what another took too many.
		r := e.get(e.wait(p, room, 0))
		if r.err != nil || len(r.notes) != min(room, sockets-len(seen)) {
			e.Fatalf("Wait for %d of %d = %d, %v", room, sockets-len(seen), len(r.notes), r.err)
		}
		for _, n := range r.notes {
			if seen[n.Key] {
				e.Errorf("%v twice", n.Key)
			}
			seen[n.Key] = true
		}
	}
	if len(seen) != sockets {
		e.Errorf("%d of %d sockets notified", len(seen), sockets)
	}
}

func waitsForTheFirstOnly(e *env) {
	p := e.port()
	w := e.wait(p, 8, -1)
	e.parked(p, 1)
	p.Post("k", 1)
	if r := e.get(w); r.err != nil || len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
}

func onlyRegisters(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	p.Post("post", 0)
	e.do(p, enable(s, "k", in, level))
	n, err := p.ProcessContext(e.Context(), []reg{disable(s), enable(s, "k", in, level)}, nil)
	if n != 0 || err != nil {
		e.Fatalf("ProcessContext without entries = %d, %v", n, err)
	}
	if got := e.come(p, 2); len(got) != 2 {
		e.Errorf("%d notifications left; want 2: %v", len(got), got)
	}
}

func onlyDequeues(e *env) {
	p := e.port()
	p.Post("k", 7)
	buf := make([]note, 1)
	n, err := p.Process(nil, buf, limit)
	if n != 1 || err != nil || buf[0].Data != 7 {
		e.Fatalf("Process = %d %v, %v", n, buf[0], err)
	}
	n, err = p.Process([]reg{}, buf, 0)
	if n != 0 || !errors.Is(err, socknotify.ErrTimeout) {
		e.Fatalf("Process = %d, %v; want ErrTimeout", n, err)
	}
}

func neither(e *env) {
	p := e.port()
	for _, regs := range [][]reg{nil, {}} {
		for _, buf := range [][]note{nil, {}} {
			if n, err := p.Process(regs, buf, 0); n != 0 || err != nil {
				e.Errorf("Process with nothing = %d, %v", n, err)
			}
		}
	}
}

func timeoutWithoutEntries(e *env) {
	p := e.port()
	s, _ := e.unix()
	for _, timeout := range []time.Duration{1, -1, time.Hour, math.MaxInt64, math.MinInt64} {
		n, err := p.Process([]reg{enable(s, "k", in, level)}, nil, timeout)
		if n != 0 {
			e.Errorf("Process = %d", n)
		}
		e.wantErr(err, socknotify.ErrInvalid)
		n, err = p.Process(nil, nil, timeout)
		if n != 0 {
			e.Errorf("Process = %d", n)
		}
		e.wantErr(err, socknotify.ErrInvalid)
	}
	e.refused(p, disable(s), socknotify.ErrNotRegistered) // nothing was changed
	var noContext context.Context
	n, err := p.ProcessContext(noContext, []reg{enable(s, "k", in, level)}, make([]note, 1))
	if n != 0 {
		e.Errorf("ProcessContext = %d", n)
	}
	e.wantErr(err, socknotify.ErrInvalid)
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
}

func waitWithoutEntries(e *env) {
	p := e.port()
	for _, buf := range [][]note{nil, {}} {
		_, err := p.Wait(e.Context(), buf)
		e.wantErr(err, socknotify.ErrInvalid)
	}
}

func eachEntryItsResult(e *env) {
	p, q := e.port(), e.port()
	a, peerA := e.unix()
	b, _ := e.unix()
	taken, _ := e.unix()
	shut, _ := e.unix()
	number := fd(shut.Handle())
	shut.Close()
	e.do(q, enable(taken, "q", in, level))
	pipe := e.noSockets()["pipe"]
	e.deliver(peerA, a, "x")
	regs := []reg{
		enable(number, "closed", in, level),
		enable(a, "a", in, level|oneShot),
		enable(taken, "taken", in, level),
		{Op: socknotify.OpEnable, Handle: b.Handle(), Filter: bad, Trigger: level},
		disable(b),
		enable(b, "b", out, level|oneShot),
		enable(pipe, "pipe", in, level),
		enable(a, "other", in, level),
		{},
		remove(pipe),
	}
	want := []error{
		socknotify.ErrBadSocket, nil, socknotify.ErrOtherPort, socknotify.ErrInvalid,
		socknotify.ErrNotRegistered, nil, socknotify.ErrBadSocket, socknotify.ErrKeyMismatch, nil,
		socknotify.ErrBadSocket,
	}
	buf := make([]note, 8)
	n, err := p.Process(regs, buf, 0)
	if n != 2 || err != nil {
		e.Fatalf("Process = %d, %v; want the two that did not fail", n, err)
	}
	for i, r := range regs {
		if !errors.Is(r.Result, want[i]) || want[i] == nil && r.Result != nil {
			e.Errorf("Result %d: %v; want %v", i, r.Result, want[i])
		}
	}
}

// longBatchWithFailures is longer than what an implementation would hand to its kernel at once.
func longBatchWithFailures(e *env) {
	const entries = 150
	p := e.port()
	var regs []reg
	good := 0
	for i := range entries {
		switch i % 3 {
		case 0:
			s, _ := e.unix()
			regs = append(regs, enable(s, i, out, level|oneShot))
			good++
		case 1:
			regs = append(regs, reg{Handle: 1 << 20, Key: i, Filter: out, Op: socknotify.OpEnable, Trigger: level})
		case 2:
			regs = append(regs, reg{Op: 3, Handle: regs[i-2].Handle})
		}
	}
	e.Helper()
	for round := range 2 {
		n, err := p.Process(regs, nil, 0)
		if n != 0 || err != nil {
			e.Fatalf("Process = %d, %v", n, err)
		}
		for i, r := range regs {
			want := []error{nil, socknotify.ErrBadSocket, socknotify.ErrInvalid}[i%3]
			if !errors.Is(r.Result, want) || want == nil && r.Result != nil {
				e.Fatalf("round %d, Result %d: %v; want %v", round, i, r.Result, want)
			}
		}
		if got := len(e.now(p)); got != good {
			e.Fatalf("round %d: %d notifications; want %d", round, got, good)
		}
	}
}

func resultsAreOverwritten(e *env) {
	p := e.port()
	s, _ := e.unix()
	old := errors.New("of an earlier use")
	regs := []reg{enable(s, "k", in, level), {}, disable(s), remove(s), remove(s)}
	for range 3 {
		for i := range regs {
			regs[i].Result = old
		}
		n, err := p.Process(regs, nil, 0)
		if n != 0 || err != nil {
			e.Fatalf("Process = %d, %v", n, err)
		}
		for i, r := range regs[:4] {
			if r.Result != nil {
				e.Errorf("Result %d: %v", i, r.Result)
			}
		}
		e.wantErr(regs[4].Result, socknotify.ErrNotRegistered)
	}
}

func registrationsMayBeReused(e *env) {
	p := e.port()
	s, peer := e.unix()
	regs := []reg{enable(s, "k", in, level|oneShot)}
	e.do(p, regs...)
	p.Process(regs, nil, 0)
	regs[0] = reg{Key: "scribbled", Filter: out, Op: socknotify.OpRemove, Trigger: edge}
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	e.none(p)
}

// processOnHeap returns weak pointers to the slices of a call.
//
//go:noinline
func processOnHeap(e *env, p *port, s handle, timeout time.Duration) (weak.Pointer[reg], weak.Pointer[note]) {
	regs, buf := make([]reg, 40), make([]note, 40)
	for i := range regs {
		regs[i] = enable(s, "k", in, level)
	}
	p.Process(regs, buf, timeout)
	return weak.Make(&regs[0]), weak.Make(&buf[0])
}

func keepsNeitherSlice(e *env) {
	p := e.port()
	s, peer := e.unix()
	for _, timeout := range []time.Duration{0, 2 * time.Millisecond} {
		regs, buf := processOnHeap(e, p, s, timeout)
		e.collected("the registrations' slice", func() bool { return regs.Value() == nil })
		e.collected("the entries' slice", func() bool { return buf.Value() == nil })
	}
	e.deliver(peer, s, "x")
	regs, buf := processOnHeap(e, p, s, limit)
	e.do(p, disable(s))
	// This goroutine's next call is the likeliest to work with what the last one worked with.
	released := async(func() error {
		defer p.Post(nil, 0)
		for begin := time.Now(); regs.Value() != nil || buf.Value() != nil; runtime.GC() {
			if time.Since(begin) > limit/2 {
				return errors.New("a waiter keeps the slices of an earlier call")
			}
		}
		return nil
	})
	e.next(p)
	e.end(released, "releasing the slices")
	runtime.KeepAlive(p)
}

func entriesActInTurn(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level), disable(s))
	e.none(p)
	e.do(p, enable(s, "k", in|out, level|oneShot), enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in) // the second one's filter
	e.none(p)
	e.do(p, disable(s), enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in)
	e.do(p, enable(s, "k", in, level), remove(s))
	e.wantNow(p, "k", gone)
	regs := []reg{disable(s), enable(s, "l", in, level|oneShot), enable(s, "k", in, level), remove(s), remove(s)}
	p.Process(regs, nil, 0)
	want := []error{socknotify.ErrNotRegistered, nil, socknotify.ErrKeyMismatch, nil, socknotify.ErrNotRegistered}
	for i, r := range regs {
		if !errors.Is(r.Result, want[i]) || want[i] == nil && r.Result != nil {
			e.Errorf("Result %d: %v; want %v", i, r.Result, want[i])
		}
	}
	e.wantNow(p, "l", gone)
}

func manyTimesInOneCall(e *env) {
	p := e.port()
	a, _ := e.unix()
	b, _ := e.unix()
	var regs []reg
	for range 100 {
		regs = append(regs,
			enable(a, "a", out, level|oneShot), enable(b, "b", out, edge),
			disable(a), enable(a, "a", out, edge|oneShot), enable(b, "b", out, level|oneShot))
	}
	call := async(func() error {
		_, err := p.Process(regs, nil, 0)
		return err
	})
	e.end(call, "a call that names two sockets over and over")
	for i, r := range regs {
		if r.Result != nil {
			e.Fatalf("Result %d: %v", i, r.Result)
		}
	}
	if got := e.now(p); len(got) != 2 {
		e.Errorf("%d notifications %v; want one of each socket", len(got), got)
	}
}

// crossedCalls has calls name the same sockets in opposite orders, which must not lock up.
func crossedCalls(e *env) {
	p := e.port()
	a, _ := e.unix()
	b, _ := e.unix()
	c, _ := e.unix()
	e.do(p, enable(a, "a", in, level), enable(b, "b", in, level), enable(c, "c", in, level))
	ea, eb, ec := enable(a, "a", in, level|oneShot), enable(b, "b", in, edge), enable(c, "c", in, level)
	var all []<-chan error
	for _, regs := range [][]reg{{ea, eb, ec}, {ec, eb, ea}, {eb, disable(b), ec, ea}, {disable(c), ea, eb, ec}} {
		all = append(all, async(func() error {
			for range 500 {
				if _, err := p.Process(regs, nil, 0); err != nil {
					return err
				}
				for _, r := range regs {
					if r.Result != nil {
						return r.Result
					}
				}
			}
			return nil
		}))
	}
	for _, ch := range all {
		e.end(ch, "calls in opposite orders")
	}
}
