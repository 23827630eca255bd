package conformance

import (
	"net"
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// What holds of sockets of package sock alone: they vouch for themselves (X5), let an edge go on where the
// kernel has none (T2), and end their registration when they are closed (G9).
var sockCases = map[string]func(*env){
	"X5/SockUrgentAfterShortReceive": sockUrgent,
	"X5/SockOtherDirection":          sockOtherDirection,
	"G9/SockCloseRacesWithEnable":    sockCloseRaces,
	"G12/SockReopened":               sockReopened,
}

// sockUrgent has urgent data cut a receive short, with more behind it.
func sockUrgent(e *env) {
	p := e.port()
	for step := range 2 {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", in, level|oneShot))
		e.deliver(peer, s, "x")
		urgent := func() {
			e.sendUrgent(peer)
			e.send(peer, "y")
		}
		if step == 0 {
			urgent()
			settle(e, s, stateUrgent)
		}
		e.want(p, "k", in)
		if step == 1 {
			urgent()
			settle(e, s, stateUrgent)
		}
		var got string
		var b [64]byte
		for range 10 {
			n, err := s.Recv(b[:])
			if err == nil {
				got += string(b[:n])
			}
			if got == "xy" {
				break
			}
			e.do(p, enable(s, "k", in, level|oneShot))
			e.want(p, "k", in)
		}
		if got != "xy" {
			e.Fatalf("step %d: received %q", step, got)
		}
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

// sockOtherDirection is drained in one direction of two.
func sockOtherDirection(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in|out, level|oneShot))
	for range 3 {
		e.wantNow(p, "k", out)
		e.drain(s)
		e.do(p, enable(s, "k", in|out, level|oneShot))
	}
	e.wantNow(p, "k", out)
	e.fill(s)
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "k", in|out, level|oneShot))
	e.wantIn(p, "k", s)
}

// sockCloseRaces closes sockets while another goroutine enables them, and their numbers are reused.
func sockCloseRaces(e *env) {
	p := e.port()
	var heard atomic.Int32
	stop := e.workers(p, 2, 4, func(n note) {
		if s, ok := n.Key.(*socket); !ok || n.Events == gone {
			e.Errorf("notification %v of %v", n.Events, s)
		}
		heard.Add(1)
	})
	for range 300 {
		s, peer := e.unix()
		e.send(peer, "x")
		enabler := async(func() error {
			for range 4 {
				regs := []reg{enable(s, s, in, level|oneShot)}
				if _, err := p.Process(regs, nil, 0); err != nil {
					return err
				}
				if err := regs[0].Result; err != nil {
					e.wantErr(err, socknotify.ErrBadSocket, net.ErrClosed)
					return nil
				}
			}
			return nil
		})
		runtime.Gosched()
		s.Close()
		peer.Close()
		e.end(enabler, "the enabler")
	}
	if n := p.Stats().Registrations; n != 0 {
		e.Errorf("%d registrations of closed sockets", n)
	}
	stop()
}

// sockReopened accepts into one Socket again and again, which gets the same number, with the same key.
func sockReopened(e *env) {
	p := e.port()
	l := e.listener()
	s := &socket{new(sock.Socket), true}
	for i := range 10 {
		c := e.fresh()
		e.connect(c, l.LocalAddr())
		settle(e, l, stateIn)
		if err := l.AcceptInto(s.Socket); err != nil {
			e.Fatalf("accept: %v", err)
		}
		e.drain(s) // would block, of a life without registration
		e.do(p, enable(s, "k", in, everyWay[i%4]))
		e.deliver(c, s, "x")
		e.wantNow(p, "k", in)
		e.drain(s)
		e.do(p, enable(s, "k", in, level|oneShot))
		s.Close()
		c.Close()
	}
	e.none2(p)
}
