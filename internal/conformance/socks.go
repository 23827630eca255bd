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
	"G8/SockIsNil":                   sockIsNil,
	"X5/SockSavesOnShortReceive":     sockSaves,
	"X5/SockEmbedded":                sockEmbedded,
	"X5/SockEndAfterShortReceive":    sockEnd,
	"X5/SockUrgentAfterShortReceive": sockUrgent,
	"X5/SockOtherDirection":          sockOtherDirection,
	"G9/SockCloseRacesWithEnable":    sockCloseRaces,
	"G12/SockReopened":               sockReopened,
}

// sockSaves is the turn of a request and its answer: one short receive, and the enable is free.
func sockSaves(e *env) {
	const rounds = 50
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge | oneShot, edge} {
		p := e.port()
		s, peer := e.tcp()
		e.do(p, enable(s, "k", in, trigger))
		before := p.Stats()
		var b [64]byte
		for range rounds {
			e.deliver(peer, s, "request")
			e.want(p, "k", in)
			if n, err := s.Recv(b[:]); n != 7 || err != nil {
				e.Fatalf("receive = %d, %v", n, err)
			}
			e.do(p, enable(s, "k", in, trigger))
		}
		after := p.Stats()
		if saved := after.FastEnables - before.FastEnables; kernelEdges(p) && saved != rounds {
			e.Errorf("%v: %d of %d enables saved", trigger, saved, rounds)
		}
	}
}

// sockEnd has the stream end, or break, at each step of a turn whose receive is short.
func sockEnd(e *env) {
	p := e.port()
	for _, broken := range []bool{false, true} {
		for step := range 4 {
			s, peer := e.tcp()
			end := func(now int) {
				switch {
				case now != step:
				case broken:
					e.reset(s, peer)
				default:
					e.shut(s, peer)
				}
			}
			e.do(p, enable(s, "k", in|hangup, level|oneShot))
			e.deliver(peer, s, "x")
			end(0) // before the notification
			if got := e.next(p); !got.Events.Has(in) {
				e.Fatalf("step %d: %v", step, got.Events)
			}
			end(1) // before the receive
			var b [64]byte
			_, _ = s.Recv(b[:])
			end(2) // before the enable
			e.do(p, enable(s, "k", in|hangup, level|oneShot))
			end(3) // after it
			if got := e.next(p); !got.Events.Has(hangup) {
				e.Fatalf("step %d, broken %t: %v; want the end", step, broken, got.Events)
			}
			e.do(p, remove(s))
			e.want(p, "k", gone)
		}
	}
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

// sockEmbedded registers what embeds a sock.Socket. It behaves as the socket does.
func sockEmbedded(e *env) {
	p := e.port()
	s, peer := e.unix()
	client := &struct{ *sock.Socket }{s.Socket}
	embedded := socknotify.Enable[any](client, "k", in, level|oneShot)
	e.do(p, embedded)
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	e.do(p, enable(s, "k", in, level|oneShot)) // it is the same registration
	e.wantNow(p, "k", in)
	e.drain(s)
	e.do(p, embedded)
	e.none(p)
	client.Close()
	e.refused(p, embedded, socknotify.ErrBadSocket, net.ErrClosed)
	e.refused(p, socknotify.Remove[any](client), socknotify.ErrNotRegistered, net.ErrClosed)
	if n := p.Stats().Registrations; n != 0 {
		e.Errorf("%d registrations after the close", n)
	}
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

func sockIsNil(e *env) {
	_, err := e.port().Deregister(reg{Conn: (*sock.Socket)(nil)})
	e.wantErr(err, socknotify.ErrBadSocket)
}
