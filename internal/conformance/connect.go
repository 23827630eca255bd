package conformance

import (
	"errors"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// E6 and E7: sockets before and while they connect.
var connectChecks = []check{
	both("E6", "FreshReportsNothing", freshReportsNothing),
	both("E6", "FreshThenConnect", freshThenConnect),
	both("E6", "FreshThenListen", freshThenListen),
	both("E6", "FreshUnderAWaiter", freshUnderWaiter),
	both("E6", "FreshBesideOthers", freshBesideOthers),
	both("E6", "UnixFreshThenConnect", unixFreshThenConnect),
	both("E7", "Refused", refusedConnect),
	both("E7", "RefusedWhileWaiting", refusedWhileWaiting),
	both("E7", "NeverOut", refusedNeverOut),
}

var everyWay = []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot}

func freshReportsNothing(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		for _, filter := range []events{0, in, out, hangup, in | out | hangup} {
			e.do(p, enable(e.fresh(), "k", filter, trigger))
		}
	}
	bound := e.fresh()
	if err := bound.Bind(sock.Loopback); err != nil {
		e.Fatalf("bind: %v", err)
	}
	e.do(p, enable(bound, "bound", in|out|hangup, level))
	e.quiet(p)
}

func freshThenConnect(e *env) {
	p := e.port()
	l := e.listener()
	for _, trigger := range everyWay {
		s := e.fresh()
		e.do(p, enable(s, "k", in|out|hangup, trigger))
		e.none(p)
		e.connect(s, l.LocalAddr())
		e.want(p, "k", out)
		settle(e, l, stateIn)
		peer := e.keep(l.Accept())
		e.do(p, enable(s, "k", in|hangup, trigger))
		peer.Close()
		e.want(p, "k", in|hangup)
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

func freshThenListen(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		l := e.fresh()
		e.do(p, enable(l, "l", in|hangup, trigger))
		e.none(p)
		if err := l.Bind(sock.Loopback); err != nil {
			e.Fatalf("bind: %v", err)
		}
		if err := l.Listen(4); err != nil {
			e.Fatalf("listen: %v", err)
		}
		e.none(p)
		e.connect(e.fresh(), l.LocalAddr())
		e.want(p, "l", in)
		e.do(p, remove(l))
		e.want(p, "l", gone)
	}
}

func freshUnderWaiter(e *env) {
	p := e.port()
	l := e.listener()
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	s := e.fresh()
	e.do(p, enable(s, "k", in|out|hangup, level))
	e.still(w)
	e.connect(s, l.LocalAddr())
	r := e.get(w)
	if len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
	e.check(r.notes[0], "k", out)
}

// freshBesideOthers has sockets that report nothing beside one that does.
func freshBesideOthers(e *env) {
	p := e.port()
	for range 10 {
		e.do(p, enable(e.fresh(), "fresh", in|out|hangup, level))
	}
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level))
	w := e.wait(p, 4, -1)
	e.parked(p, 1)
	e.send(peer, "x")
	r := e.get(w)
	if len(r.notes) != 1 {
		e.Fatalf("Wait = %v, %v", r.notes, r.err)
	}
	e.check(r.notes[0], "k", in)
	e.wantNow(p, "k", in)
	e.drain(s)
	e.quiet(p)
}

func unixFreshThenConnect(e *env) {
	p := e.port()
	l := e.unixStream()
	path := e.unixListen(l)
	for _, trigger := range everyWay {
		s := e.unixStream()
		e.do(p, enable(s, "k", in|out|hangup, trigger))
		e.quiet(p)
		e.unixConnect(s, path)
		e.do(p, enable(s, "k", out|hangup, trigger))
		e.want(p, "k", out)
		e.do(p, remove(s))
		e.want(p, "k", gone)
		e.closeFD(s)
	}
	e.closeFD(l)
}

// refusedSocket makes a socket whose connect has failed.
func (e *env) refusedSocket() *socket {
	e.Helper()
	for range 20 {
		if s := e.fresh(); e.refuseConnect(s) {
			return s
		}
	}
	e.Skip("this system refuses within the call")
	return nil
}

// refuseConnect starts a connect that fails. False says that the call itself has told already, so that nothing
// is pending; the socket is closed then.
func (e *env) refuseConnect(s *socket) bool {
	e.Helper()
	if err := s.Connect(e.nowhere(sock.TCP4)); !errors.Is(err, sock.ErrWouldBlock) {
		s.Close()
		return false
	}
	settle(e, s, stateErr)
	return true
}

func refusedConnect(e *env) {
	p := e.port()
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range everyWay {
			s := e.refusedSocket()
			e.do(p, enable(s, "k", filter, trigger))
			e.wantNow(p, "k", filter&^out|bad)
			e.wantErr(s.Err(), errRefused)
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func refusedWhileWaiting(e *env) {
	for filter := events(0); filter <= socknotify.EventsAll; filter++ {
		for _, trigger := range everyWay {
			p := e.port()
			w := e.wait(p, 4, -1)
			e.parked(p, 1)
			s := e.fresh()
			e.do(p, enable(s, "k", filter, trigger))
			if !e.refuseConnect(s) {
				p.Close() // what the waiter was told, if anything, is of no interest
				e.get(w)
				continue
			}
			r := e.get(w)
			if len(r.notes) != 1 {
				e.Fatalf("Wait = %v, %v", r.notes, r.err)
			}
			e.check(r.notes[0], "k", filter&^out|bad)
			e.wantErr(s.Err(), errRefused)
		}
	}
}

func refusedNeverOut(e *env) {
	p := e.port()
	s := e.refusedSocket()
	for _, trigger := range []socknotify.Trigger{level, level | oneShot, edge | oneShot} {
		for range 3 {
			e.do(p, enable(s, "k", in|out|hangup, trigger))
			e.wantNow(p, "k", in|hangup|bad)
		}
	}
}

// E8: conditions that persist.
var standingChecks = []check{
	both("E8", "NoneHearsErrors", noneHearsErrors),
	both("E8", "NoneHearsNothingElse", noneHearsNothingElse),
	both("E8", "AtLeastOnce", standsAtLeastOnce),
	both("E8", "OneShotNotAgain", oneShotNotAgain),
	both("E8", "EdgeNotForEver", edgeNotForEver),
	both("E8", "OutBesideHangup", outBesideHangup),
	both("E8", "DisabledDoesNotSpin", disabledDoesNotSpin),
	both("E8", "LevelOutsideTheFilter", levelOutsideFilter),
}

func noneHearsErrors(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", socknotify.EventNone, trigger))
		e.deliver(peer, s, "x")
		e.none(p)
		e.reset(s, peer)
		e.wantNow(p, "k", bad)
		e.do(p, remove(s))
		e.wantNow(p, "k", gone)
	}
}

// lasting makes conditions that last, one after the other, of a pair of sockets.
func (e *env) lasting(s, peer *socket) []func() {
	return []func(){
		func() { e.deliver(peer, s, "x") },
		func() { e.shut(s, peer) },
		func() { s.Shutdown(sock.ShutWrite) },
		func() { peer.Close() },
	}
}

func noneHearsNothingElse(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		for _, trigger := range everyWay {
			s, peer := pair()
			e.do(p, enable(s, "k", socknotify.EventNone, trigger))
			for _, step := range e.lasting(s, peer) {
				step()
			}
		}
	}
	e.quiet(p)
}

func standsAtLeastOnce(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level | oneShot, edge, edge | oneShot} {
		for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
			s, peer := pair()
			peer.Close()
			settle(e, s, statePeerClosed)
			// An edge that held already when it was enabled may go unreported, but for an error
			// or an end, which no later change would follow.
			e.do(p, enable(s, "k", in|hangup, trigger))
			e.wantNow(p, "k", in|hangup)
			e.do(p, remove(s))
			e.wantNow(p, "k", gone)
		}
	}
}

func oneShotNotAgain(e *env) {
	p := e.port()
	for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
		s, peer := pair()
		e.do(p, enable(s, "k", in|hangup, level|oneShot))
		peer.Close()
		settle(e, s, statePeerClosed)
		for range 3 {
			e.wantNow(p, "k", in|hangup)
			e.quiet(p)
			e.do(p, enable(s, "k", in|hangup, level|oneShot))
		}
		e.wantNow(p, "k", in|hangup)
	}
}

func edgeNotForEver(e *env) {
	p := e.port()
	for _, filter := range []events{0, in, hangup, in | out | hangup} {
		for _, pair := range []func() (a, b *socket){e.tcp, e.unix} {
			s, peer := pair()
			e.do(p, enable(s, "k", filter, edge))
			const each = 8
			steps := e.lasting(s, peer)
			for _, step := range steps {
				step()
				for range each {
					e.now(p) // one for each new event of the kernel
				}
			}
			e.quietSoon(p, each*len(steps))
		}
	}
}

// outBesideHangup asks for a condition that does not hold beside one that persists.
func outBesideHangup(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		s, peer := e.tcp()
		e.fill(s)
		e.do(p, enable(s, "k", out, trigger))
		e.shut(s, peer)
		e.quiet(p)
		e.until("OUT, when the peer has made room", func() bool {
			e.drain(peer)
			got := e.now(p)
			for _, n := range got {
				e.check(n, "k", out)
			}
			return len(got) > 0
		})
		e.do(p, remove(s))
		e.want(p, "k", gone)
	}
}

func disabledDoesNotSpin(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		s, peer := e.tcp()
		e.do(p, enable(s, "k", in|out|hangup, trigger), disable(s))
		e.reset(s, peer)
		u, unixPeer := e.unix()
		e.do(p, enable(u, "u", in|out|hangup, trigger), disable(u))
		unixPeer.Close()
	}
	e.quiet(p)
}

func levelOutsideFilter(e *env) {
	p := e.port()
	s, peer := e.tcp()
	e.do(p, enable(s, "k", hangup, level))
	e.deliver(peer, s, "x") // readable and writable, and the filter has neither
	e.quiet(p)
	e.shut(s, peer)
	e.wantNow(p, "k", hangup)
	e.wantNow(p, "k", hangup)
}
