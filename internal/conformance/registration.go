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
var enableChecks = []check{
	both("G1", "CreatesEnabled", createsEnabled),
	both("G1", "EveryTrigger", everyTrigger),
	both("G2", "ReplacesFilter", replacesFilter),
	both("G2", "ReplacesTrigger", replacesTrigger),
	both("G2", "EnablesAgain", enablesAgain),
	both("G2", "KeyMismatchChangesNothing", keyMismatch),
	both("G2", "EqualKeysAreTheSame", equalKeys),
	both("G2", "KeyThatCannotBeCompared", keyThatPanics),
	both("G2", "KeyThatIsNaN", keyThatIsNaN),
	both("G2", "NewKeyAfterRemoval", newKeyAfterRemoval),
}

func createsEnabled(e *env) {
	p := e.port()
	s, peer := e.unix()
	k := &key{"k"}
	e.do(p, enable(s, k, in, level))
	if n := p.Stats().Registrations; n != 1 {
		e.Errorf("%d registrations", n)
	}
	e.none(p)
	e.deliver(peer, s, "x")
	e.wantNow(p, k, in)
}

func everyTrigger(e *env) {
	p := e.port()
	for _, when := range []socknotify.Trigger{level, edge} {
		for _, often := range []socknotify.Trigger{0, oneShot, persistent} {
			s, peer := e.unix()
			e.do(p, enable(s, when|often, in, when|often))
			e.none(p)
			e.send(peer, "x")
			e.want(p, when|often, in)
			e.drain(s)
			e.none(p)
			e.do(p, remove(s))
			e.wantNow(p, when|often, gone)
		}
	}
}

func replacesFilter(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", out, level))
	e.wantNow(p, "k", out)
	e.do(p, enable(s, "k", in, level))
	e.none(p)
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	e.do(p, enable(s, "k", in|out, level))
	e.wantNow(p, "k", in|out)
	e.do(p, enable(s, "k", hangup, level))
	e.none(p)
}

func replacesTrigger(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level))
	e.wantNow(p, "k", in)
	e.wantNow(p, "k", in)
	e.do(p, enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in)
	e.none(p)
	e.do(p, enable(s, "k", in, level|persistent))
	e.wantNow(p, "k", in)
	e.wantNow(p, "k", in)
	e.do(p, enable(s, "k", in, edge|oneShot))
	e.now(p) // what held already may be reported
	e.none(p)
	e.drain(s)
	e.do(p, enable(s, "k", in, edge))
	e.send(peer, "y")
	e.want(p, "k", in)
}

func enablesAgain(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level), disable(s))
	e.none(p)
	e.do(p, enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in)
}

func keyMismatch(e *env) {
	p := e.port()
	s, peer := e.unix()
	a, b := &key{"same"}, &key{"same"}
	e.do(p, enable(s, a, in, level|oneShot))
	e.refused(p, enable(s, b, in|out, level), socknotify.ErrKeyMismatch)
	e.refused(p, enable(s, nil, in|out, level), socknotify.ErrKeyMismatch)
	r := drained(s, b, in, level|oneShot)
	e.refused(p, r, socknotify.ErrKeyMismatch)
	e.none(p) // the filter is still IN
	e.deliver(peer, s, "x")
	e.wantNow(p, a, in)
	e.none(p) // and the trigger one-shot
	e.refused(p, enable(s, b, in, level), socknotify.ErrKeyMismatch)
	e.none(p) // and still disabled
	e.do(p, enable(s, a, in, level|oneShot))
	e.wantNow(p, a, in)
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

func newKeyAfterRemoval(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	for i := range 5 {
		e.do(p, enable(s, i, in, level|oneShot))
		e.wantNow(p, i, in)
		e.do(p, remove(s))
		e.wantNow(p, i, gone)
	}
}

// G3: OpDisable.
var disableChecks = []check{
	both("G3", "StopsNotifications", disableStops),
	both("G3", "KeepsRegistration", disableKeeps),
	both("G3", "Repeated", disableRepeated),
	both("G3", "NotRegistered", disableNotRegistered),
	both("G3", "WakesNobody", disableWakesNobody),
}

func disableStops(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, peer := e.unix()
		e.do(p, enable(s, "k", in|out|hangup, trigger), disable(s))
		e.send(peer, "x")
		peer.Close()
		e.none(p)
	}
}

func disableKeeps(e *env) {
	p, q := e.port(), e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level), disable(s))
	e.refused(p, enable(s, "other", in, level), socknotify.ErrKeyMismatch)
	e.refused(q, enable(s, "k", in, level), socknotify.ErrOtherPort)
	if n := p.Stats().Registrations; n != 1 {
		e.Errorf("%d registrations", n)
	}
	e.do(p, remove(s))
	e.wantNow(p, "k", gone)
}

func disableRepeated(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level), disable(s), disable(s))
	e.do(p, disable(s))
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level))
	e.wantNow(p, "k", in)
}

func disableNotRegistered(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
	e.do(p, enable(s, "k", in, level), remove(s))
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
}

// disableWakesNobody disables beside a waiter, then lets the socket become ready.
func disableWakesNobody(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level))
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	e.do(p, disable(s))
	for range 20 {
		e.send(peer, "x")
	}
	e.still(w)
	e.do(p, enable(s, "k", in, level))
	r := e.get(w)
	if len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
	e.check(r.notes[0], "k", in)
}

// G6 to G8: registrations that make no sense.
var invalidChecks = []check{
	both("G6", "OpNone", opNone),
	both("G6", "InvalidNamesField", invalidNamesField),
	both("G6", "BeforeLookup", invalidBeforeLookup),
	both("G6", "ChangesNothing", invalidChangesNothing),
	both("G6", "ReadOnEnableOnly", readOnEnableOnly),
	both("G6", "DefaultIsPersistent", defaultIsPersistent),
	both("G7", "EveryFilter", everyFilter),
	both("G7", "AlwaysOnIsInvalid", alwaysOnIsInvalid),
	both("G8", "ClosedHandle", closedHandle),
	both("G8", "NoSocket", noSocket),
	both("G8", "NoHandleAtAll", noHandleAtAll),
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

func opNone(e *env) {
	p := e.port()
	s, _ := e.unix()
	nonsense := reg{Handle: ^uintptr(0) >> 4, Key: []int{}, Filter: math.MaxUint32, Trigger: math.MaxUint8, Drained: true}
	e.do(p, reg{}, reg{Handle: s.Handle()}, nonsense, reg{Conn: &net.TCPConn{}})
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
	e.do(p, enable(s, "k", in, level), reg{Handle: s.Handle()})
	e.do(p, disable(s))
}

// An invalidCase is an entry that G6 or G7 forbid, and the field to blame.
type invalidCase struct {
	field   string
	op      socknotify.Op
	filter  events
	trigger socknotify.Trigger
}

func invalidCases() []invalidCase {
	const enable, disable, remove = socknotify.OpEnable, socknotify.OpDisable, socknotify.OpRemove
	return []invalidCase{
		{"Op", enable | disable, in, level},
		{"Op", enable | remove, in, level},
		{"Op", disable | remove, in, level},
		{"Op", enable | disable | remove, in, level},
		{"Op", 8, in, level},
		{"Op", enable | 0x80, in, level},
		{"Trigger", enable, in, 0},
		{"Trigger", enable, in, oneShot},
		{"Trigger", enable, in, persistent},
		{"Trigger", enable, in, level | edge},
		{"Trigger", enable, in, level | oneShot | persistent},
		{"Trigger", enable, in, edge | oneShot | persistent},
		{"Trigger", enable, in, level | 0x10},
		{"Trigger", enable, in, level | 0x80},
		{"Filter", enable, bad, level},
		{"Filter", enable, gone, level},
		{"Filter", enable, in | bad, level},
		{"Filter", enable, in | gone, level},
		{"Filter", enable, 0x08, level},
		{"Filter", enable, 0x10, level},
		{"Filter", enable, 1 << 31, level},
		{"Filter", enable, math.MaxUint32, level},
	}
}

func (c invalidCase) on(s handle) reg {
	return reg{Handle: s.Handle(), Key: "k", Op: c.op, Filter: c.filter, Trigger: c.trigger}
}

func invalidNamesField(e *env) {
	p := e.port()
	s, _ := e.unix()
	for _, c := range invalidCases() {
		e.refused(p, c.on(s), socknotify.ErrInvalid)
		e.namesField(p, c.on(s), c.field)
	}
	e.refused(p, disable(s), socknotify.ErrNotRegistered)
}

func invalidBeforeLookup(e *env) {
	p := e.port()
	for _, c := range invalidCases() {
		e.refused(p, c.on(fd(1<<20)), socknotify.ErrInvalid)
		r := c.on(fd(0))
		r.Conn = &net.TCPConn{}
		e.refused(p, r, socknotify.ErrInvalid)
	}
}

func invalidChangesNothing(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	for _, c := range invalidCases() {
		e.do(p, enable(s, "k", in, level|oneShot))
		e.refused(p, c.on(s), socknotify.ErrInvalid)
		e.wantNow(p, "k", in)
		e.refused(p, c.on(s), socknotify.ErrInvalid)
		if got := e.now(p); len(got) != 0 {
			e.Fatalf("an invalid entry enabled: %v", got)
		}
	}
}

func readOnEnableOnly(e *env) {
	p := e.port()
	s, _ := e.unix()
	nonsense := func(op socknotify.Op) reg {
		return reg{Handle: s.Handle(), Key: []int{}, Filter: math.MaxUint32, Op: op, Trigger: math.MaxUint8, Drained: true}
	}
	e.do(p, enable(s, "k", in, level), nonsense(socknotify.OpDisable), nonsense(socknotify.OpRemove))
	e.wantNow(p, "k", gone)
}

func defaultIsPersistent(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level))
	e.deliver(peer, s, "x")
	for range 4 {
		e.wantNow(p, "k", in)
	}
	e.drain(s)
	e.do(p, enable(s, "k", in, edge))
	for range 4 {
		e.send(peer, "x")
		e.want(p, "k", in)
		e.drain(s)
		e.again(p, s, "k", in, edge)
	}
}

func everyFilter(e *env) {
	p := e.port()
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		s, peer := e.unix()
		e.deliver(peer, s, "x")
		e.do(p, enable(s, filter, filter, level))
		if want := filter & (in | out); want != 0 {
			e.wantNow(p, filter, want)
		} else {
			e.none(p)
		}
		e.do(p, remove(s))
		e.wantNow(p, filter, gone)
	}
}

func alwaysOnIsInvalid(e *env) {
	p := e.port()
	s, _ := e.unix()
	for _, filter := range []events{bad, gone, bad | gone, in | bad, socknotify.EventsAll | gone} {
		e.namesField(p, enable(s, "k", filter, level), "Filter")
	}
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
}

func closedHandle(e *env) {
	p := e.port()
	s, _ := e.unix()
	number := fd(s.Handle())
	e.do(p, enable(s, "k", in, level), remove(s))
	e.next(p)
	s.Close()
	for range 2 {
		e.refused(p, enable(number, "k", in, level), socknotify.ErrBadSocket, errNotOpen)
		e.refused(p, drained(number, "k", in, level), socknotify.ErrBadSocket, errNotOpen)
		e.refused(p, disable(number), socknotify.ErrBadSocket, errNotOpen)
		e.refused(p, remove(number), socknotify.ErrBadSocket, errNotOpen)
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

func noHandleAtAll(e *env) {
	p := e.port()
	for _, h := range []uintptr{1 << 20, 1<<26 - 1, 1 << 26, math.MaxInt32, 1 << 31, math.MaxUint32, ^uintptr(0) ^ math.MaxUint32>>1, ^uintptr(0) >> 1, ^uintptr(0)} {
		f := fd(h)
		for _, r := range []reg{enable(f, "k", in, level), drained(f, "k", in, level), disable(f), remove(f)} {
			e.refused(p, r, socknotify.ErrBadSocket, errNotOpen)
		}
	}
	if n := p.Stats().Registrations; n != 0 {
		e.Errorf("%d registrations", n)
	}
}

// G4, G5 and G11: OpRemove.
var removeChecks = []check{
	both("G4", "RemoveEnabled", removeEnabled),
	both("G4", "RemoveDisabled", removeDisabled),
	both("G4", "RemoveFiredOneShot", removeFired),
	both("G4", "ExactlyOnce", removeOnce),
	both("G4", "NotRegistered", removeNotRegistered),
	both("G4", "CloseAtOnce", removeThenClose),
	both("G4", "EnableAtOnce", removeThenEnable),
	both("G4", "OtherPortAtOnce", removeThenOtherPort),
	both("G4", "WakesWaiter", removeWakes),
	both("G4", "WakesWaiterForTheRest", removeRestWakes),
	both("G4", "NothingAfterwards", nothingAfterRemoval),
	both("G4", "ConcurrentRemovals", concurrentRemovals),
	both("G5", "ComesAlone", removeAlone),
	both("G5", "DropsWhatIsQueued", removeDropsQueued),
	both("G11", "AfterEventRemove", releasedAfterRemove),
	both("G11", "AfterDeregister", releasedAfterDeregister),
	both("G11", "AfterTraffic", releasedAfterTraffic),
}

func removeEnabled(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, _ := e.unix()
		e.do(p, enable(s, "k", in, trigger), remove(s))
		e.wantNow(p, "k", gone)
		e.none(p)
	}
}

func removeDisabled(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level), disable(s), remove(s))
	e.wantNow(p, "k", gone)
	e.none(p)
}

func removeFired(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level|oneShot))
	e.wantNow(p, "k", in)
	e.do(p, remove(s))
	e.wantNow(p, "k", gone)
	e.none(p)
}

func removeOnce(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level), remove(s))
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
	e.wantNow(p, "k", gone)
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
	e.none(p)
	if st := p.Stats(); st.Registrations != 0 || st.Removals != 1 {
		e.Errorf("%d registrations, %d removals", st.Registrations, st.Removals)
	}
}

func removeNotRegistered(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.refused(p, remove(s), socknotify.ErrNotRegistered)
	e.none(p)
}

func removeThenClose(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, level), remove(s))
	s.Close()
	e.wantNow(p, "k", gone)
	if _, err := receiveAll(peer); err == nil {
		e.Errorf("the removed and closed socket is still open")
	}
}

func removeThenEnable(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "a", in, level|oneShot), remove(s), enable(s, "b", in, level|oneShot))
	got := e.come(p, 2)
	if len(got) != 2 {
		e.Fatalf("notifications %v; want the old key's removal and the new key's event", got)
	}
	if got[0].Events != gone {
		got[0], got[1] = got[1], got[0]
	}
	e.check(got[0], "a", gone)
	e.check(got[1], "b", in)
	e.none(p)
}

func removeThenOtherPort(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "p", in, level), remove(s))
	e.do(q, enable(s, "q", in, level))
	e.wantNow(q, "q", in)
	e.wantNow(p, "p", gone)
	e.none(p)
}

func removeWakes(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level))
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	e.do(p, remove(s))
	r := e.get(w)
	if len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
	e.check(r.notes[0], "k", gone)
}

// removeRestWakes removes two in a call that has room for one EventRemove. Another call waits, and must be given the other.
func removeRestWakes(e *env) {
	p := e.port()
	a, _ := e.unix()
	b, _ := e.unix()
	e.do(p, enable(a, "a", in, level), enable(b, "b", in, level))
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	var one [1]note
	n, err := p.Process([]reg{remove(a), remove(b)}, one[:], patience())
	if n != 1 || err != nil {
		e.Fatalf("Process = %d, %v; want one notification", n, err)
	}
	r := e.get(w)
	if len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
	other := "a"
	if one[0].Key == other {
		other = "b"
	} else {
		e.check(one[0], "b", gone)
	}
	e.check(r.notes[0], other, gone)
	e.none(p)
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

func removeAlone(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in|out|hangup, level))
	e.reset(s, peer)
	e.do(p, remove(s))
	n := e.next(p)
	if n.Events != gone || n.Data != 0 || n.Kind() == socknotify.KindPosted {
		e.Errorf("EventRemove came as %v, data %d, posted %t", n.Events, n.Data, n.Kind() == socknotify.KindPosted)
	}
	e.none(p)
}

func removeDropsQueued(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, peer := e.unix()
		e.do(p, enable(s, "k", in|out, trigger))
		e.deliver(peer, s, "x")
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
		e.none(p)
	}
}

func releasedAfterRemove(e *env) {
	p := e.port()
	keys := weakKeys(4, func(i int, k *key) {
		s, _ := e.unix()
		e.do(p, enable(s, k, in, []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot}[i]), remove(s))
	})
	e.kept(keys)
	for range keys {
		if n := e.next(p); n.Events != gone {
			e.Fatalf("notification %v", n.Events)
		}
	}
	e.released("a removed key", keys)
	runtime.KeepAlive(p)
}

func releasedAfterDeregister(e *env) {
	p := e.port()
	keys := weakKeys(3, func(_ int, k *key) {
		s, _ := e.unix()
		e.do(p, enable(s, k, in, level))
		e.deregister(p, s, k)
	})
	e.released("a removed key", keys)
	runtime.KeepAlive(p)
}

// releasedAfterTraffic has the key pass through waits, posts and a full batch first.
func releasedAfterTraffic(e *env) {
	p := e.port()
	keys := weakKeys(3, func(_ int, k *key) {
		s, peer := e.unix()
		w := e.wait(p, 4, -1)
		e.parked(p, 1)
		e.do(p, enable(s, k, in, level))
		e.send(peer, "x")
		e.get(w)
		p.Post(k, 1)
		for tries := 0; e.next(p).Kind() != socknotify.KindPosted; tries++ {
			if tries == 1000 {
				e.Fatalf("the level came %d times, and the post never (Q2)", tries)
			}
		}
		var regs []reg
		for range 70 {
			regs = append(regs, enable(s, k, in, level))
		}
		e.do(p, append(regs, remove(s))...)
		e.want(p, k, gone)
	})
	e.released("a removed key", keys)
	runtime.KeepAlive(p)
}
