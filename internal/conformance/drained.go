package conformance

import (
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// X5: enabling without asking the kernel.
var drainedChecks = []check{
	both("X5", "Saves", drainedSaves),
	both("X5", "EventBeforeEnable", eventBeforeEnable),
	both("X5", "EventBeforeEnableDequeued", eventBeforeEnableDequeued),
	both("X5", "MutedWhileDisabled", mutedWhileDisabled),
	both("X5", "EndAfterDraining", endAfterDraining),
	both("X5", "ErrorAfterDraining", errorAfterDraining),
	both("X5", "OtherFilter", drainedOtherFilter),
	both("X5", "OtherTrigger", drainedOtherTrigger),
	both("X5", "AfterDisable", drainedAfterDisable),
	both("X5", "NewRegistration", drainedNew),
	both("X5", "AfterRemoval", drainedAfterRemoval),
	both("X5", "BothDirections", drainedBothDirections),
	both("X5", "StaysOneShot", drainedStaysOneShot),
	both("X5", "UnderLoad", drainedUnderLoad),
	both("X5", "ArrivalRacesWithEnable", arrivalRaces),
}

// drainedSaves needs a kernel with edges; without them only that nothing is lost remains.
func drainedSaves(e *env) {
	const rounds = 20
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
		p := e.port()
		s, peer := e.unix()
		e.do(p, enable(s, "k", in, trigger))
		before := p.Stats()
		for range rounds {
			e.send(peer, "x")
			e.want(p, "k", in)
			e.drain(s)
			e.do(p, drained(s, "k", in, trigger))
		}
		after := p.Stats()
		saved, asked := after.FastEnables-before.FastEnables, after.Rearms-before.Rearms
		if kernelEdges(p) && (saved != rounds || asked != 0) {
			e.Errorf("%v: %d of %d enables saved, %d asked the kernel", trigger, saved, rounds, asked)
		}
		if saved+asked != rounds {
			e.Errorf("%v: %d saved and %d asked; want %d together", trigger, saved, asked, rounds)
		}
	}
}

// eventBeforeEnable has data arrive after would-block, which nobody has dequeued at the enable.
func eventBeforeEnable(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		s, peer := e.unix()
		e.do(p, enable(s, "k", in, trigger))
		for range 5 {
			e.deliver(peer, s, "x")
			e.wantNow(p, "k", in)
			e.drain(s)
			e.deliver(peer, s, "y")
			e.do(p, drained(s, "k", in, trigger))
			e.wantNow(p, "k", in)
			e.drain(s)
			e.do(p, drained(s, "k", in, trigger))
		}
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

// eventBeforeEnableDequeued has somebody look in between, who is given nothing: the report is used up.
func eventBeforeEnableDequeued(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
		s, peer := e.unix()
		e.do(p, enable(s, "k", in, trigger))
		for range 5 {
			e.deliver(peer, s, "x")
			e.wantNow(p, "k", in)
			e.drain(s)
			e.deliver(peer, s, "y")
			if got := e.now(p); len(got) != 0 {
				e.Fatalf("disabled, but notified: %v", got)
			}
			e.do(p, drained(s, "k", in, trigger))
			e.wantNow(p, "k", in)
			e.drain(s)
			e.do(p, drained(s, "k", in, trigger))
		}
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

// mutedWhileDisabled has more and more arrive while disabled, each time looked for.
func mutedWhileDisabled(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
		for arrivals := range 6 {
			s, peer := e.unix()
			e.do(p, enable(s, "k", in, trigger))
			e.deliver(peer, s, "x")
			e.wantNow(p, "k", in)
			e.drain(s)
			for range arrivals {
				e.deliver(peer, s, "y")
				if got := e.now(p); len(got) != 0 {
					e.Fatalf("disabled, but notified: %v", got)
				}
			}
			e.drain(s)
			e.do(p, drained(s, "k", in, trigger))
			e.deliver(peer, s, "z")
			e.wantNow(p, "k", in)
			e.drain(s)
			e.do(p, drained(s, "k", in, trigger))
			e.deliver(peer, s, "z")
			e.wantNow(p, "k", in)
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
}

func endAfterDraining(e *env) {
	p := e.port()
	for _, look := range []int{0, 1, 3} {
		for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
			for _, filter := range []events{in, hangup, in | hangup} {
				s, peer := e.tcp()
				e.do(p, enable(s, "k", filter|in, trigger))
				e.deliver(peer, s, "x")
				e.want(p, "k", in)
				e.drain(s)
				e.shut(s, peer)
				for range look {
					e.now(p)
				}
				e.do(p, drained(s, "k", filter|in, trigger))
				e.wantNow(p, "k", filter|in)
				e.do(p, remove(s))
				e.want(p, "k", gone)
			}
		}
	}
}

func errorAfterDraining(e *env) {
	p := e.port()
	for _, look := range []int{0, 1, 3} {
		for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
			s, peer := e.tcp()
			e.do(p, enable(s, "k", in|hangup, trigger))
			e.deliver(peer, s, "x")
			e.want(p, "k", in)
			e.drain(s)
			e.reset(s, peer)
			for range look {
				e.now(p)
			}
			e.do(p, drained(s, "k", in|hangup, trigger))
			e.wantNow(p, "k", in|hangup|bad)
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
}

func drainedOtherFilter(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot))
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	e.drain(s)
	e.fill(s)
	e.do(p, drained(s, "k", in|out, edge|oneShot))
	e.none(p)
	e.drain(peer)
	e.want(p, "k", out)
	e.fill(s)
	e.do(p, drained(s, "k", in, edge|oneShot))
	e.drain(peer)
	e.none(p)
	e.send(peer, "y")
	e.want(p, "k", in)
}

func drainedOtherTrigger(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot))
	for i := range 24 {
		trigger := everyWay[(i*7+i/4)%4]
		e.drain(s)
		e.do(p, drained(s, "k", in, trigger))
		e.none2(p)
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
	}
}

// none2 is none for cases that ask often: it polls.
func (e *env) none2(p *port) {
	e.Helper()
	if got := e.now(p); len(got) != 0 {
		e.Fatalf("notifications %v; want none", got)
	}
}

func drainedAfterDisable(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		for _, late := range []bool{false, true} {
			s, peer := e.unix()
			e.do(p, enable(s, "k", in, trigger), disable(s))
			if !late {
				e.deliver(peer, s, "x")
				e.none2(p)
			}
			e.do(p, drained(s, "k", in, trigger))
			if late {
				e.deliver(peer, s, "x")
			} else {
				// The vouch was false here; the port may still know better, but need not.
				e.now(p)
				e.drain(s)
				e.do(p, drained(s, "k", in, trigger))
				e.deliver(peer, s, "x")
			}
			e.wantNow(p, "k", in)
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
}

func drainedNew(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		s, peer := e.unix()
		e.do(p, drained(s, "k", in, trigger))
		e.none2(p)
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

func drainedAfterRemoval(e *env) {
	p := e.port()
	s, peer := e.unix()
	for i := range 4 {
		e.do(p, enable(s, i, in, edge|oneShot), remove(s))
		e.want(p, i, gone)
		e.do(p, drained(s, -i, in, edge|oneShot))
		e.deliver(peer, s, "x")
		e.wantNow(p, -i, in)
		e.drain(s)
		e.do(p, remove(s))
		e.want(p, -i, gone)
	}
}

// drainedBothDirections lets each direction change alone between would-block and the enable.
func drainedBothDirections(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.fill(s)
	e.do(p, enable(s, "k", in|out, edge|oneShot))
	for i := range 12 {
		if i%2 == 0 {
			e.deliver(peer, s, "x")
		} else {
			e.drain(peer)
			settle(e, s, stateOut)
		}
		if i%3 == 0 {
			e.now(p)
		}
		if i >= 2 {
			e.do(p, drained(s, "k", in|out, edge|oneShot))
			e.now(p)
		}
		for len(e.now(p)) > 0 {
			continue
		}
		e.drain(s)
		e.fill(s)
		e.do(p, drained(s, "k", in|out, edge|oneShot))
		for len(e.now(p)) > 0 {
			e.drain(s)
			e.fill(s)
			e.do(p, drained(s, "k", in|out, edge|oneShot))
		}
		e.deliver(peer, s, "y")
		e.wantIn(p, "k", s)
		e.drain(s)
		e.do(p, drained(s, "k", in|out, edge|oneShot))
	}
}

func drainedStaysOneShot(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge|oneShot))
	for range 10 {
		e.deliver(peer, s, "x")
		e.wantNow(p, "k", in)
		for range 3 {
			e.deliver(peer, s, "y")
			e.none2(p)
		}
		e.drain(s)
		e.do(p, drained(s, "k", in, edge|oneShot), drained(s, "k", in, edge|oneShot))
		e.none2(p)
	}
}

// drainedUnderLoad counts what comes through to a reader that vouches every time.
func drainedUnderLoad(e *env) {
	const total = 20000
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot} {
		p := e.port()
		s, peer := e.unix()
		var received atomic.Int32
		stop := e.workers(p, 2, 1, func(n note) {
			var b [256]byte
			for {
				n, err := s.Recv(b[:])
				if err != nil {
					break
				}
				received.Add(int32(n))
			}
			p.Process([]reg{drained(s, "k", in, trigger)}, nil, 0)
		})
		e.do(p, enable(s, "k", in, trigger))
		for i := range total {
			for {
				if n, err := peer.Send([]byte("x")); n == 1 {
					break
				} else if err == nil {
					e.Fatalf("send = 0")
				}
				runtime.Gosched()
			}
			if i%16 == 0 {
				runtime.Gosched()
			}
		}
		e.until("everything is received", func() bool { return received.Load() == total })
		stop()
	}
}

// arrivalRaces has a byte arrive at the very time of the enable, over and over.
func arrivalRaces(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge|oneShot))
	turn := make(chan bool)
	sender := async(func() error {
		for range turn {
			if _, err := peer.Send([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	turn <- true
	for i := range 1000 {
		e.want(p, "k", in)
		for e.drain(s) == "" {
			// A spurious one.
			e.do(p, drained(s, "k", in, edge|oneShot))
			e.want(p, "k", in)
		}
		turn <- true
		for range i % 40 {
			runtime.Gosched()
		}
		e.do(p, drained(s, "k", in, edge|oneShot))
	}
	close(turn)
	e.end(sender, "the sender")
}
