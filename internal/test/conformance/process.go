package conformance

import (
	"errors"
	"runtime"
	"time"
	"weak"
)

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
