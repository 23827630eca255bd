package conformance

import (
	"math"
	"net"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// G1 and G2: OpEnable.
var enableCases = map[string]func(*env){
	"G2/EqualKeysAreTheSame":     equalKeys,
	"G2/KeyThatCannotBeCompared": keyThatPanics,
	"G2/KeyThatIsNaN":            keyThatIsNaN,
}

func equalKeys(e *env) {
	p := e.port()
	s, _ := e.unix()
	type pair struct {
		a string
		b any
	}
	for _, keys := range [][2]any{
		{"key", strings.Clone("key")}, {nil, nil}, {1, 1}, {pair{"x", 1}, pair{strings.Clone("x"), 1}},
	} {
		e.do(p, enable(s, keys[0], in, level), enable(s, keys[1], in, level), remove(s))
		e.next(p)
	}
	e.do(p, enable(s, 1, in, level))
	e.refused(p, enable(s, int64(1), in, level), socknotify.ErrKeyMismatch)
}

func keyThatPanics(e *env) {
	e.refusesKeys([]int{1}, map[int]int{}, func() {}, struct{ a any }{[]int{}}, [1]any{func() {}})
}

func keyThatIsNaN(e *env) {
	nan := math.NaN()
	e.refusesKeys(nan, float32(nan), complex(1, nan), struct{ a float64 }{nan}, [1]float32{float32(nan)},
		struct{ a any }{nan}, [2]any{1, [1]any{nan}})
	p := e.port()
	l := e.listener()
	e.wantErr(p.Accept(l.Socket, nan, 1), socknotify.ErrInvalid)
	if err := p.Post(nan, 1); err != nil {
		e.Fatalf("Post: %v", err)
	}
	if n := e.next(p); n.Kind() != socknotify.KindPosted || n.Key == n.Key {
		e.Errorf("posted NaN; got %v", n.Key)
	}
}

// refusesKeys checks that no registration is made with any of these keys, nor one that there is enabled.
func (e *env) refusesKeys(keys ...any) {
	e.Helper()
	p := e.port()
	s, peer := e.unix()
	for _, k := range keys {
		e.refused(p, enable(s, k, in, level), socknotify.ErrInvalid)
		e.namesField(p, enable(s, k, in, level), "Key")
		e.refused(p, disable(s), socknotify.ErrNotRegistered)
		e.do(p, enable(s, "k", in, level|oneShot))
		e.refused(p, enable(s, k, in, level), socknotify.ErrInvalid)
		e.refused(p, drained(s, k, in, level), socknotify.ErrInvalid)
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		e.drain(s)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

// G6 to G8: registrations that make no sense.
var invalidCases = map[string]func(*env){
	"G6/BeforeLookup":       beforeLookup,
	"G8/NoSocket":           noSocket,
	"G6/OpNoneReadsNothing": opNoneReadsNothing,
}

// namesField checks that a refusal's text names a field.
func (e *env) namesField(p *port, r reg, field string) {
	e.Helper()
	regs := []reg{r}
	p.Process(regs, nil, 0)
	e.wantErr(regs[0].Result, socknotify.ErrInvalid)
	if !strings.Contains(regs[0].Result.Error(), field) {
		e.Errorf("%q does not name the field %s", regs[0].Result, field)
	}
}

func noSocket(e *env) {
	p := e.port()
	for what, f := range e.noSockets() {
		for _, r := range []reg{enable(f, "k", in, level), disable(f), remove(f)} {
			e.Logf("%s: %v", what, r.Op)
			e.refused(p, r, socknotify.ErrBadSocket, errNoSocket)
		}
	}
}

// opNoneReadsNothing has entries whose other fields make no sense.
func opNoneReadsNothing(e *env) {
	p := e.port()
	e.do(p, reg{Handle: ^uintptr(0) >> 4, Key: []int{}, Filter: math.MaxUint32, Trigger: math.MaxUint8, Drained: true}, reg{Conn: &net.TCPConn{}})
}

// beforeLookup has a connection that is none, in an entry that is invalid for another reason.
func beforeLookup(e *env) {
	p := e.port()
	for field, r := range map[string]reg{
		"Op": {Op: 3}, "Trigger": {Op: socknotify.OpEnable}, "Filter": {Op: socknotify.OpEnable, Filter: bad, Trigger: level},
	} {
		r.Conn = &net.TCPConn{}
		e.refused(p, r, socknotify.ErrInvalid)
		e.namesField(p, r, field)
	}
}

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
