package conformance

import (
	"errors"
	"runtime"

	"github.com/socknotify/socknotify"
)

// P5: several ports.
var claimChecks = []check{
	both("P5", "ManyPorts", manyPorts),
	both("P5", "SecondPort", secondPort),
	both("P5", "SecondPortWhileDisabled", secondPortWhileDisabled),
	both("P5", "AfterRemoval", afterRemoval),
	both("P5", "AfterClosingThePort", afterClosingThePort),
	both("P5", "AfterDroppingThePort", afterDroppingThePort),
	both("P5", "TakeoverOfReusedNumber", takeoverOfReusedNumber),
	both("P5", "RaceForASocket", raceForASocket),
	both("P5", "RaceOfCrossedClaims", raceOfCrossedClaims),
}

func manyPorts(e *env) {
	const ports = 20
	for i := range ports {
		p := e.port()
		s, peer := e.unix()
		e.do(p, enable(s, i, in, level))
		e.deliver(peer, s, "x")
		defer e.wantNow(p, i, in)
	}
}

func secondPort(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "p", in, level|oneShot))
	e.refused(q, enable(s, "q", in|out, level), socknotify.ErrOtherPort)
	e.refused(q, disable(s), socknotify.ErrNotRegistered)
	e.refused(q, remove(s), socknotify.ErrNotRegistered)
	e.deliver(peer, s, "x")
	e.none(q)
	e.wantNow(p, "p", in)
	e.none(p)
}

func secondPortWhileDisabled(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "p", in, level), disable(s))
	e.refused(q, enable(s, "q", in, level), socknotify.ErrOtherPort)
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "p", in, level))
	e.wantNow(p, "p", in)
}

func afterRemoval(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	for range 3 {
		e.do(p, enable(s, "p", in, level|oneShot))
		e.wantNow(p, "p", in)
		e.do(p, remove(s))
		e.do(q, enable(s, "q", in, level|oneShot))
		e.refused(p, enable(s, "p", in, level), socknotify.ErrOtherPort)
		e.wantNow(q, "q", in)
		e.wantNow(p, "p", gone)
		e.do(q, remove(s))
		e.wantNow(q, "q", gone)
	}
}

func afterClosingThePort(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "p", in, level))
	p.Close()
	e.do(q, enable(s, "q", in, level))
	e.deliver(peer, s, "x")
	e.wantNow(q, "q", in)
}

func afterDroppingThePort(e *env) {
	q := e.port()
	s, peer := e.unix()
	func() {
		p := e.factory(e.T)
		e.do(p, enable(s, "p", in, level))
	}()
	e.until("the dropped port's claim is void", func() bool {
		runtime.GC()
		regs := []reg{enable(s, "q", in, level)}
		q.Process(regs, nil, 0)
		if r := regs[0].Result; r != nil && !errors.Is(r, socknotify.ErrOtherPort) {
			e.Fatalf("Result: %v", r)
		}
		return regs[0].Result == nil
	})
	e.deliver(peer, s, "x")
	e.wantNow(q, "q", in)
}

// takeoverOfReusedNumber closes a socket without removing it; the number comes back on another port.
func takeoverOfReusedNumber(e *env) {
	p, q := e.port(), e.port()
	s, _ := e.unix()
	other, peer := e.unix()
	e.do(p, enable(s, "p", in, level))
	number := s.Handle()
	s.Close()
	again := e.become(number, other)
	defer e.closeFD(again)
	e.do(q, enable(again, "q", in, level|oneShot))
	e.deliver(peer, other, "x")
	e.wantNow(q, "q", in)
	e.none(p)
	// The first port's registration is over, and its end must not take the second's claim along.
	e.refused(p, remove(again), socknotify.ErrNotRegistered)
	e.refused(p, enable(again, "p", in, level), socknotify.ErrOtherPort)
	e.do(q, enable(again, "q", in, level|oneShot))
	e.wantNow(q, "q", in)
	e.do(q, remove(again))
	e.wantNow(q, "q", gone)
	e.do(p, enable(again, "p2", in, level|oneShot))
	e.wantNow(p, "p2", in)
}

func raceForASocket(e *env) {
	p, q := e.port(), e.port()
	s, _ := e.unix()
	for range 200 {
		results := make([]error, 2)
		var all []<-chan error
		for i, port := range []*port{p, q} {
			all = append(all, async(func() error {
				regs := []reg{enable(s, i, in, level)}
				_, err := port.Process(regs, nil, 0)
				results[i] = regs[0].Result
				return err
			}))
		}
		for _, ch := range all {
			e.end(ch, "enabling")
		}
		winner, loser := p, results[1]
		if results[0] != nil {
			winner, loser = q, results[0]
			if results[1] != nil {
				e.Fatalf("neither port got the socket: %v; %v", results[0], results[1])
			}
		}
		e.wantErr(loser, socknotify.ErrOtherPort)
		e.do(winner, remove(s))
		e.next(winner)
	}
}

// raceOfCrossedClaims has two ports take several sockets in opposite orders, in one call each.
func raceOfCrossedClaims(e *env) {
	p, q := e.port(), e.port()
	a, _ := e.unix()
	b, _ := e.unix()
	for range 200 {
		orders := [][]reg{
			{enable(a, 0, in, level), enable(b, 0, in, level), remove(a), remove(b)},
			{enable(b, 1, in, level), enable(a, 1, in, level), remove(b), remove(a)},
		}
		var all []<-chan error
		for i, port := range []*port{p, q} {
			all = append(all, async(func() error {
				_, err := port.Process(orders[i], nil, 0)
				return err
			}))
		}
		for _, ch := range all {
			e.end(ch, "enabling in opposite orders")
		}
		for _, regs := range orders {
			for i := range 2 {
				if (regs[i].Result == nil) != (regs[i+2].Result == nil) {
					e.Fatalf("enable: %v, but remove: %v", regs[i].Result, regs[i+2].Result)
				}
			}
		}
		e.now(p)
		e.now(q)
	}
}
