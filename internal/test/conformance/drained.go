package conformance

import (
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// X5: enabling without asking the kernel.
var drainedCases = map[string]func(*env){
	"X5/BothDirections":         drainedBothDirections,
	"X5/UnderLoad":              drainedUnderLoad,
	"X5/ArrivalRacesWithEnable": arrivalRaces,
}

// none2 is none for cases that ask often: it polls.
func (e *env) none2(p *port) {
	e.Helper()
	if got := e.now(p); len(got) != 0 {
		e.Fatalf("notifications %v; want none", got)
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
