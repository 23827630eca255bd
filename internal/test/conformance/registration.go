package conformance

import (
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// G1 and G2: OpEnable.
var enableCases = map[string]func(*env){}

// G6 to G8: registrations that make no sense.
var invalidCases = map[string]func(*env){}

// G4, G5 and G11: OpRemove.
var removeCases = map[string]func(*env){
	"G4/NothingAfterwards":  nothingAfterRemoval,
	"G4/ConcurrentRemovals": concurrentRemovals,
}

// nothingAfterRemoval removes under a flood of events. A waiter that begins to wait after the removal
// must never be given the old key, but for its EventRemove.
func nothingAfterRemoval(e *env) {
	const rounds = 300
	type life struct{ over, done atomic.Bool }
	p := e.port()
	s, peer := e.unix()
	var now atomic.Pointer[life]
	now.Store(&life{})
	var late atomic.Int32
	ended := make(chan error, 3)
	for range cap(ended) {
		go func() {
			buf := make([]note, 2)
			for {
				current := now.Load()
				over := current.over.Load()
				n, err := p.Process(nil, buf, -1)
				if err != nil {
					ended <- nil
					return
				}
				for _, got := range buf[:n] {
					l := got.Key.(*life)
					switch {
					case got.Events == gone:
						if l.done.Swap(true) {
							late.Add(1)
						}
					case l == current && over:
						late.Add(1)
					}
				}
			}
		}()
	}
	for i := range rounds {
		l := now.Load()
		trigger := []socknotify.Trigger{level, edge, level | oneShot}[i%3]
		e.do(p, enable(s, l, in|out, trigger))
		if i%8 == 0 {
			e.drain(s)
		}
		e.send(peer, "x")
		if i%4 == 0 {
			runtime.Gosched()
		}
		e.do(p, remove(s))
		l.over.Store(true)
		e.until("EventRemove", l.done.Load)
		now.Store(&life{})
	}
	p.Close()
	for range cap(ended) {
		e.end(ended, "a waiter")
	}
	if n := late.Load(); n != 0 {
		e.Errorf("%d notifications after the removal", n)
	}
}

func concurrentRemovals(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.send(peer, "x")
	for range 200 {
		e.do(p, enable(s, "k", in|out, level|oneShot))
		var won atomic.Int32
		var all []<-chan error
		for range 3 {
			all = append(all, async(func() error {
				regs := []reg{remove(s)}
				_, err := p.Process(regs, nil, 0)
				if regs[0].Result == nil {
					won.Add(1)
				}
				return err
			}))
		}
		for _, ch := range all {
			e.end(ch, "a removal")
		}
		if won.Load() != 1 {
			e.Fatalf("%d of 3 removals succeeded", won.Load())
		}
		e.wantNow(p, "k", gone)
		if got := e.now(p); len(got) != 0 {
			e.Fatalf("more than one removal: %v", got)
		}
	}
}
