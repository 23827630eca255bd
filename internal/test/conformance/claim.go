package conformance

import (
	"errors"
	"runtime"

	"github.com/socknotify/socknotify"
)

// P5: several ports.
var claimCases = map[string]func(*env){
	"P5/AfterDroppingThePort": afterDroppingThePort,
	"P5/RaceForASocket":       raceForASocket,
	"P5/RaceOfCrossedClaims":  raceOfCrossedClaims,
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
