package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// T1 and T4 to T6: levels, and what is common to all triggers.
var levelChecks = []check{
	both("T1", "AsLongAsItHolds", asLongAsItHolds),
	both("T1", "OncePerWait", oncePerWait),
	both("T1", "ForEveryWaiter", forEveryWaiter),
	both("T1", "ForSleepersBesideAPoll", forSleepersBesidePoll),
	both("T1", "HoldsWhenEnabled", holdsWhenEnabled),
	both("T1", "AmongManySockets", levelAmongMany),
	both("T1", "Out", levelOut),
	both("T4", "NotifiesAgain", notifiesAgain),
	both("T4", "EchoWithManyWorkers", echoWorkers),
	both("T5", "Coalesce", coalesce),
	both("T5", "OneSocketOneEntry", oneSocketOneEntry),
	both("T6", "NothingWhileDisabled", nothingWhileDisabled),
	both("T6", "LookedAtWhenEnabled", lookedAtWhenEnabled),
	both("T6", "EndedWhileDisabled", endedWhileDisabled),
}

func asLongAsItHolds(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|persistent))
	e.deliver(peer, s, "xyz")
	var b [1]byte
	for range 3 {
		e.wantNow(p, "k", in)
		e.wantNow(p, "k", in)
		if _, err := s.Recv(b[:]); err != nil {
			e.Fatalf("receive: %v", err)
		}
	}
	e.none(p)
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
}

func oncePerWait(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in|out, level))
	for range 10 {
		e.wantNow(p, "k", in|out)
		if n := e.next(p); n.Events != in|out {
			e.Fatalf("notification %v", n.Events)
		}
	}
}

// forEveryWaiter has one waiter take the notification and go away; the level must reach the others.
func forEveryWaiter(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level))
	var all []<-chan result
	for range 4 {
		all = append(all, e.wait(p, 1, -1))
	}
	e.parked(p, 4)
	e.send(peer, "x")
	for _, ch := range all {
		r := e.get(ch)
		if len(r.notes) != 1 {
			e.Fatalf("Wait = %v, %v", r.notes, r.err)
		}
		e.check(r.notes[0], "k", in)
	}
}

// forSleepersBesidePoll has a call that does not wait take the notification of a level that it has
// enabled itself; a waiter must be notified of the level as well.
func forSleepersBesidePoll(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	buf := make([]note, 4)
	for range 50 {
		w := e.wait(p, 1, -1)
		e.parked(p, 1)
		regs := []reg{enable(s, "k", in, level)}
		_, err := p.Process(regs, buf, 0)
		if err != nil && !errors.Is(err, socknotify.ErrTimeout) || regs[0].Result != nil {
			e.Fatalf("Process: %v; %v", err, regs[0].Result)
		}
		if r := e.get(w); len(r.notes) != 1 {
			e.Fatalf("Wait = %v, %v", r.notes, r.err)
		}
		e.do(p, disable(s))
	}
}

func holdsWhenEnabled(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, level | oneShot} {
		s, peer := e.unix()
		e.deliver(peer, s, "x")
		e.do(p, enable(s, "k", in, trigger))
		e.wantNow(p, "k", in)
		e.do(p, disable(s), enable(s, "k", in, trigger))
		e.wantNow(p, "k", in)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

// levelAmongMany keeps many levels up and has room for few: each must have its turn.
func levelAmongMany(e *env) {
	const sockets = 40
	p := e.port()
	for i := range sockets {
		s, _ := e.unix()
		e.do(p, enable(s, i, out, level))
	}
	seen := map[any]bool{}
	buf := make([]note, 3)
	for range 100 * sockets {
		n, err := p.Process(nil, buf, limit)
		if err != nil {
			e.Fatalf("Wait: %v", err)
		}
		for _, got := range buf[:n] {
			seen[got.Key] = true
		}
		if len(seen) == sockets {
			return
		}
	}
	e.Errorf("%d of %d sockets have had a turn", len(seen), sockets)
}

func levelOut(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", out, level))
	e.wantNow(p, "k", out)
	e.fill(s)
	e.none(p)
	e.drain(peer)
	e.want(p, "k", out)
	e.wantNow(p, "k", out)
}

func notifiesAgain(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	for range 20 {
		e.do(p, enable(s, "k", in, level|oneShot))
		e.wantNow(p, "k", in)
		if got := e.now(p); len(got) != 0 {
			e.Fatalf("a second notification for one enable: %v", got)
		}
	}
	// The same in one call, as the pattern for many goroutines does it.
	buf := make([]note, 4)
	for range 20 {
		regs := []reg{enable(s, "k", in, level|oneShot)}
		if n, err := p.Process(regs, buf, 0); n != 1 || err != nil {
			e.Fatalf("Process = %d, %v", n, err)
		}
	}
}

// echoWorkers is the pattern itself: workers that register again in the call that dequeues.
func echoWorkers(e *env) {
	const connections, workers, rounds = 12, 4, 50
	type connection struct {
		s    *socket
		busy atomic.Int32
	}
	p := e.port()
	var failed atomic.Pointer[string]
	fail := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		failed.Store(&s)
	}
	worker := func() error {
		var regs []reg
		buf := make([]note, 3)
		b := make([]byte, 64)
		for {
			n, err := p.Process(regs, buf, -1)
			if errors.Is(err, socknotify.ErrClosed) {
				return nil
			}
			for _, r := range regs {
				if r.Result != nil {
					fail("Result: %v", r.Result)
				}
			}
			regs = regs[:0]
			for _, got := range buf[:n] {
				c := got.Key.(*connection)
				if c.busy.Add(1) != 1 {
					fail("two workers hold one connection")
				}
				m, err := c.s.Recv(b)
				if err == nil {
					_, err = c.s.Send(b[:m])
				}
				if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
					fail("echo: %v", err)
				}
				c.busy.Add(-1)
				regs = append(regs, enable(c.s, c, in, level|oneShot))
			}
		}
	}
	var all []<-chan error
	for range workers {
		all = append(all, async(worker))
	}
	q := e.port() // for the clients
	left := make([]int, connections)
	peers := make([]*socket, connections)
	for i := range connections {
		s, peer := e.unix()
		e.do(p, enable(s, &connection{s: s}, in, level|oneShot))
		e.do(q, enable(peer, i, in, level|oneShot))
		peers[i], left[i] = peer, rounds
		e.send(peer, "ping")
	}
	for open := connections; open > 0; {
		n := e.next(q)
		if failed.Load() != nil {
			break
		}
		i := n.Key.(int)
		if got := e.drain(peers[i]); got != "ping" {
			e.Fatalf("connection %d echoes %q", i, got)
		}
		if left[i]--; left[i] == 0 {
			open--
			continue
		}
		e.send(peers[i], "ping")
		e.do(q, enable(peers[i], i, in, level|oneShot))
	}
	p.Close()
	for _, ch := range all {
		e.end(ch, "a worker")
	}
	if s := failed.Load(); s != nil {
		e.Fatalf("%s", *s)
	}
}

func coalesce(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", in|out|hangup, trigger))
		e.send(peer, "x")
		e.send(peer, "y")
		e.shut(s, peer)
		e.wantNow(p, "k", in|out|hangup)
		if got := e.drainOrEnd(s); got != "xy" {
			e.Errorf("received %q", got)
		}
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

// drainOrEnd is drain that also takes an end of stream.
func (e *env) drainOrEnd(s *socket) string {
	e.Helper()
	data, err := receiveAll(s)
	if err != nil && !errors.Is(err, endOfStream) {
		e.Fatalf("receive: %v", err)
	}
	return data
}

func oneSocketOneEntry(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in|out, edge))
	for range 10 {
		e.deliver(peer, s, "x")
	}
	if got := e.come(p, 1); len(got) != 1 {
		e.Errorf("%d notifications queued at once", len(got))
	}
}

func nothingWhileDisabled(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge} {
		s, peer := e.unix()
		e.do(p, enable(s, "k", in|hangup, trigger), disable(s))
		for range 10 {
			e.deliver(peer, s, "x")
			if got := e.now(p); len(got) != 0 {
				e.Fatalf("notifications while disabled: %v", got)
			}
		}
		peer.Close()
		e.quiet(p)
	}
}

func lookedAtWhenEnabled(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|hangup, level|oneShot), disable(s))
	e.send(peer, "x")
	e.shut(s, peer)
	e.none(p)
	e.do(p, enable(s, "k", in|hangup, level|oneShot))
	e.wantNow(p, "k", in|hangup)
}

// endedWhileDisabled has a level come and go while the registration is disabled.
func endedWhileDisabled(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level), disable(s))
	e.deliver(peer, s, "x")
	e.now(p)
	e.drain(s)
	e.do(p, enable(s, "k", in, level))
	e.none(p)
}

// T2: edges. On a kernel without edges the registration is enabled again after each draining.
var edgeChecks = []check{
	both("T2", "EveryChange", everyChange),
	both("T2", "DrainAfterEnabling", drainAfterEnabling),
	both("T2", "ChangeBetweenTwoReceives", changeBetween),
	both("T2", "Out", edgeOut),
	both("T2", "OneDirectionAfterTheOther", oneAfterTheOther),
	both("T2", "EndAfterData", endAfterData),
	both("T2", "Listener", edgeListener),
	both("T2", "NoneLostUnderLoad", edgeUnderLoad),
}

func everyChange(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge))
	for range 50 {
		e.send(peer, "x")
		e.want(p, "k", in)
		if got := e.drain(s); got != "x" {
			e.Fatalf("received %q", got)
		}
		e.again(p, s, "k", in, edge)
	}
}

func drainAfterEnabling(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in, edge))
	if got := e.drain(s); got != "x" {
		e.Fatalf("received %q", got)
	}
	e.again(p, s, "k", in, edge)
	e.now(p) // what held already may have been reported
	e.drain(s)
	e.again(p, s, "k", in, edge)
	e.send(peer, "y")
	e.want(p, "k", in)
}

// changeBetween lets data arrive after the last receive, and before it is enabled again where that is
// needed.
func changeBetween(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge))
	for range 50 {
		e.send(peer, "x")
		e.want(p, "k", in)
		e.drain(s)
		e.send(peer, "y")
		e.again(p, s, "k", in, edge)
		e.want(p, "k", in)
		if got := e.drain(s); got != "y" {
			e.Fatalf("received %q", got)
		}
		e.again(p, s, "k", in, edge)
	}
}

func edgeOut(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", out, edge))
	for range 5 {
		e.now(p)
		e.fill(s)
		e.again(p, s, "k", out, edge)
		e.until("OUT, when the peer has made room", func() bool {
			e.drain(peer)
			got := e.now(p)
			for _, n := range got {
				e.check(n, "k", out)
			}
			return len(got) > 0
		})
	}
}

// oneAfterTheOther has the second direction change while the first one is still undrained.
func oneAfterTheOther(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.fill(s)
	e.do(p, enable(s, "k", in|out, edge))
	e.send(peer, "x")
	if n := e.next(p); n.Events&in == 0 {
		e.Fatalf("notification %v; want IN", n.Events)
	}
	e.drain(peer) // makes room; s has not been read
	var got events
	for got&out == 0 {
		got |= e.next(p).Events
	}
}

func endAfterData(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|hangup, edge))
	e.send(peer, "x")
	e.want(p, "k", in)
	e.drain(s)
	e.again(p, s, "k", in|hangup, edge)
	e.shut(s, peer)
	e.want(p, "k", in|hangup)
}

func edgeListener(e *env) {
	p := e.port()
	l := e.listener()
	e.do(p, enable(l, "l", in, edge))
	for range 5 {
		for range 3 {
			e.connect(e.fresh(), l.LocalAddr())
		}
		for got := 0; got < 3; {
			e.want(p, "l", in)
			for {
				s, err := l.Accept()
				if errors.Is(err, sock.ErrWouldBlock) {
					break
				}
				e.keep(s, err)
				got++
			}
			e.again(p, l, "l", in, edge)
		}
		for len(e.now(p)) > 0 {
			e.again(p, l, "l", in, edge)
		}
	}
}

// edgeUnderLoad counts the bytes that come through, in bursts, to a reader that acts on edges alone.
func edgeUnderLoad(e *env) {
	const total = 1 << 20
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge))
	sender := async(func() error {
		r := rand.New(rand.NewPCG(1, 2))
		b := make([]byte, 8192)
		for sent := 0; sent < total; {
			n, err := peer.Send(b[:min(1+r.IntN(len(b)), total-sent)])
			if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
				return err
			}
			sent += n
		}
		return nil
	})
	for got := 0; got < total; {
		e.want(p, "k", in)
		got += len(e.drain(s))
		e.again(p, s, "k", in, edge)
	}
	e.end(sender, "the sender")
}

// T3 and T7: one-shot.
var oneShotChecks = []check{
	both("T3", "OneForEachEnable", oneForEachEnable),
	both("T3", "AcrossWaiters", oneAcrossWaiters),
	both("T3", "ErrorCounts", errorCounts),
	both("T3", "RemoveStillComes", removeStillComes),
	both("T3", "OneWhenItHolds", oneWhenItHolds),
	both("T7", "EdgeOneShot", edgeOneShot),
	both("T7", "NothingLost", edgeOneShotLosesNothing),
	both("T7", "AcrossWaiters", edgeOneShotAcrossWaiters),
}

func oneForEachEnable(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", in|hangup, level|oneShot))
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	e.deliver(peer, s, "y")
	e.shut(s, peer)
	e.none(p)
	e.do(p, enable(s, "k", in|hangup, level|oneShot))
	e.wantNow(p, "k", in|hangup)
	e.quiet(p)
}

func oneAcrossWaiters(e *env) {
	const waiters = 6
	for range 20 {
		p := e.port()
		s, peer := e.unix()
		e.do(p, enable(s, "k", in, level|oneShot))
		var all []<-chan result
		for range waiters {
			all = append(all, e.wait(p, 2, -1))
		}
		sender := async(func() error {
			for range 20 {
				if _, err := peer.Send([]byte("x")); err != nil {
					return err
				}
			}
			return nil
		})
		e.end(sender, "the sender")
		e.parked(p, waiters-1)
		p.Close()
		got := 0
		for _, ch := range all {
			got += len(e.get(ch).notes)
		}
		if got != 1 {
			e.Fatalf("%d notifications for one enable", got)
		}
	}
}

func errorCounts(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", socknotify.EventNone, trigger))
		e.reset(s, peer)
		e.wantNow(p, "k", bad)
		e.quiet(p)
		e.do(p, enable(s, "k", socknotify.EventNone, level|oneShot))
		e.wantNow(p, "k", bad) // it was not read
		e.quiet(p)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

func removeStillComes(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", out, level|oneShot))
	e.wantNow(p, "k", out)
	e.do(p, remove(s))
	e.wantNow(p, "k", gone)
}

// oneWhenItHolds enables beside waiters, over and over, a socket whose condition stands.
func oneWhenItHolds(e *env) {
	const rounds = 500
	p := e.port()
	s, peer := e.unix()
	e.send(peer, "x")
	heard := make(chan note, rounds)
	stop := e.workers(p, 3, 1, func(n note) { heard <- n })
	for i := range rounds {
		e.do(p, enable(s, "k", in, level|oneShot))
		select {
		case n := <-heard:
			e.check(n, "k", in)
		case <-time.After(limit):
			e.Fatalf("enable %d brought no notification", i)
		}
	}
	stop()
	if n := len(heard); n != 0 {
		e.Errorf("%d notifications too many", n)
	}
}

func edgeOneShot(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge|oneShot))
	for range 20 {
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		e.deliver(peer, s, "y")
		if got := e.now(p); len(got) != 0 {
			e.Fatalf("a second notification for one enable: %v", got)
		}
		if got := e.drain(s); got != "xy" {
			e.Fatalf("received %q", got)
		}
		e.do(p, drained(s, "k", in, edge|oneShot))
	}
}

// edgeOneShotLosesNothing has data arrive before the draining ends, between it and the enable, and
// after that.
func edgeOneShotLosesNothing(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge|oneShot))
	for i := range 60 {
		e.send(peer, "x")
		e.want(p, "k", in)
		e.drain(s)
		enabling := drained(s, "k", in, edge|oneShot)
		enabling.Drained = i%2 == 0
		if i%3 == 0 {
			e.send(peer, "y")
		}
		e.do(p, enabling)
		if i%3 == 1 {
			e.send(peer, "y")
		}
		if i%3 != 2 {
			e.want(p, "k", in)
			if got := e.drain(s); got != "y" {
				e.Fatalf("received %q", got)
			}
			e.do(p, drained(s, "k", in, edge|oneShot))
		}
	}
}

func edgeOneShotAcrossWaiters(e *env) {
	const total = 2000
	p := e.port()
	s, peer := e.unix()
	var holders, received atomic.Int32
	var broken atomic.Bool
	stop := e.workers(p, 4, 1, func(n note) {
		if holders.Add(1) != 1 {
			broken.Store(true)
		}
		var b [64]byte
		for {
			n, err := s.Recv(b[:])
			if err != nil {
				break
			}
			received.Add(int32(n))
		}
		holders.Add(-1)
		p.Process([]reg{drained(s, "k", in, edge|oneShot)}, nil, 0)
	})
	e.do(p, enable(s, "k", in, edge|oneShot))
	for i := range total {
		e.send(peer, "x")
		if i%50 == 0 {
			e.until("what was sent is received", func() bool { return int(received.Load()) == i+1 })
		}
	}
	e.until("everything is received", func() bool { return received.Load() == total })
	stop()
	if broken.Load() {
		e.Errorf("two waiters held the notification of a one-shot registration")
	}
}
