package conformance

import (
	"context"
	"errors"
	"runtime"
	"time"
	"weak"

	"github.com/socknotify/socknotify"
)

// C1, C2, C3, C5 and C6: what one call does with its two slices.
var processCases = map[string]func(*env){
	"C2/TimeoutWithoutContext":    timeoutWithoutContext,
	"C1/TakesNoMoreThanEntries":   takesNoMoreThanEntries,
	"C2/OnlyRegisters":            onlyRegisters,
	"C2/WaitWithoutEntries":       waitWithoutEntries,
	"C3/LongBatchWithFailures":    longBatchWithFailures,
	"C5/RegistrationsMayBeReused": registrationsMayBeReused,
	"C5/KeepsNeitherSlice":        keepsNeitherSlice,
	"C6/ManyTimesInOneCall":       manyTimesInOneCall,
	"C6/CrossedCalls":             crossedCalls,
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

// timeoutWithoutContext has calls without a context.
func timeoutWithoutContext(e *env) {
	p := e.port()
	s, _ := e.unix()
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
