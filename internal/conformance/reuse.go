package conformance

import (
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// G9: sockets that are closed without being removed, and numbers that come back.
var reuseChecks = []check{
	both("G9", "CloseEndsSilently", closeEndsSilently),
	both("G9", "ReusedNumberNewKey", reusedNumberNewKey),
	both("G9", "ReusedNumberSameKey", reusedNumberSameKey),
	both("G9", "ReusedNumberOtherPort", reusedNumberOtherPort),
	both("G9", "ReusedWithEventsInFlight", reusedInFlight),
	both("G9", "ReusedUnderWaiters", reusedUnderWaiters),
	both("G9", "ReplacedAtOnce", replacedAtOnce),
	both("G9", "KeyReleasedByReuse", keyReleasedByReuse),
	both("G9", "KeyReleasedByOperation", keyReleasedByOperation),
	both("G9", "PeerSeesTheClose", peerSeesClose),
	ofSocks("G9", "EnabledAgainAsASocket", enabledAgainAsSocket),
}

func closeEndsSilently(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot} {
		s, peer := e.unix()
		number := fd(s.Handle())
		e.do(p, enable(s, "k", in|out|hangup, trigger))
		e.now(p)
		s.Close()
		e.quiet(p)
		_, _ = peer.Send([]byte("x"))
		e.none(p)
		e.refused(p, disable(number), socknotify.ErrBadSocket, errNotOpen)
		e.refused(p, remove(number), socknotify.ErrBadSocket, errNotOpen)
		e.none(p)
		if n := p.Stats().Registrations; n != 0 {
			e.Errorf("%d registrations", n)
		}
	}
}

// reuse closes a socket and gives its number to a new one.
func (e *env) reuse(s *socket) (again fd, peer *socket) {
	e.Helper()
	number := s.Handle()
	s.Close()
	a, b := e.unix()
	return e.at(number, a, b)
}

// at gives a number that was closed to one of a pair of new sockets. The system may have given it to
// either by itself. The case closes it.
func (e *env) at(number uintptr, a, b *socket) (again fd, peer *socket) {
	e.Helper()
	if b.Handle() == number {
		a, b = b, a
	}
	spare := e.dup(a)
	a.Close()
	if spare.Handle() == number {
		return spare, b
	}
	again = e.become(number, spare)
	e.closeFD(spare)
	return again, b
}

func reusedNumberNewKey(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, oldPeer := e.unix()
		e.do(p, enable(s, "old", in|hangup, trigger))
		again, peer := e.reuse(s)
		e.do(p, enable(again, "new", in|hangup, trigger))
		_, _ = oldPeer.Send([]byte("x"))
		e.none(p)
		e.write(peer, "y")
		settle(e, again, stateIn)
		e.wantNow(p, "new", in)
		e.do(p, remove(again))
		e.wantNow(p, "new", gone)
		e.closeFD(again)
	}
}

// reusedNumberSameKey uses the number itself as the key, as many programs do.
func reusedNumberSameKey(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, oldPeer := e.unix()
		k := s.Handle()
		e.send(oldPeer, "x")
		e.do(p, enable(s, k, in, trigger))
		again, peer := e.reuse(s)
		e.do(p, enable(again, k, in, trigger))
		e.none(p)
		e.write(peer, "y")
		e.want(p, k, in)
		e.do(p, remove(again))
		e.wantNow(p, k, gone)
		e.none(p)
		e.closeFD(again)
	}
}

func reusedNumberOtherPort(e *env) {
	p, q := e.port(), e.port()
	s, oldPeer := e.unix()
	e.send(oldPeer, "x")
	e.do(p, enable(s, "old", in, level))
	again, peer := e.reuse(s)
	defer e.closeFD(again)
	e.do(q, enable(again, "new", in, level|oneShot))
	e.none(q)
	e.none(p)
	e.write(peer, "y")
	e.want(q, "new", in)
	e.none(p)
	e.refused(p, disable(again), socknotify.ErrNotRegistered)
	e.do(q, remove(again))
	e.wantNow(q, "new", gone)
}

// reusedInFlight closes sockets whose events have not been dequeued.
func reusedInFlight(e *env) {
	p := e.port()
	for i := range 16 {
		s, oldPeer := e.unix()
		old, fresh := &key{"old"}, &key{"new"}
		trigger := []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot}[i%4]
		e.do(p, enable(s, old, in|out, trigger))
		e.deliver(oldPeer, s, "x")
		if i%8 >= 4 {
			e.want(p, old, in|out) // the level goes on
		}
		again, peer := e.reuse(s)
		e.do(p, enable(again, fresh, in, trigger))
		for _, n := range e.now(p) {
			if n.Key != old {
				e.Fatalf("the new registration of a quiet socket was given %v", n.Events)
			}
		}
		e.none(p)
		e.write(peer, "y")
		e.want(p, fresh, in)
		e.do(p, remove(again))
		e.want(p, fresh, gone)
		e.closeFD(again)
	}
}

// reusedUnderWaiters goes through many lives of one number while waiters dequeue. Each life is either
// sent to or not; a silent one must never be reported.
func reusedUnderWaiters(e *env) {
	const lives = 120
	type life struct {
		loud  bool
		heard atomic.Int32
	}
	p := e.port()
	stop := e.workers(p, 3, 2, func(n note) {
		if n.Events != gone {
			n.Key.(*life).heard.Add(1)
		}
	})
	var all []*life
	s, peer := e.unix()
	number := uintptr(e.dup(s))
	s.Close()
	reused := 0
	for i := range lives {
		l := &life{loud: i%2 == 0}
		all = append(all, l)
		e.do(p, enable(fd(number), l, in, []socknotify.Trigger{level, edge, level | oneShot}[i%3]))
		if l.loud {
			e.send(peer, "x")
			if i%4 == 0 {
				e.until("a notification", func() bool { return l.heard.Load() > 0 })
			} else {
				runtime.Gosched()
			}
		}
		a, b := e.unix()
		// Half of them closed first, half replaced in one step.
		if i%2 == 0 {
			e.closeFD(fd(number))
		}
		before := number
		number = uintptr(e.tryBecome(number, a, 20))
		if number == before {
			reused++
		}
		a.Close()
		peer.Close()
		peer = b
	}
	peer.Close()
	e.closeFD(fd(number))
	stop()
	if reused < lives/2 {
		e.Errorf("%d of %d numbers came back", reused, lives)
	}
	for i, l := range all {
		if n := l.heard.Load(); n > 0 && !l.loud {
			e.Errorf("life %d of the number, which was silent, was reported %d times", i, n)
		}
	}
}

// replacedAtOnce puts another socket in the place of a registered one, without a moment between.
func replacedAtOnce(e *env) {
	p := e.port()
	s, oldPeer := e.unix()
	other, peer := e.unix()
	e.send(oldPeer, "x")
	e.do(p, enable(s, "old", in, level))
	e.want(p, "old", in)
	again := e.become(s.Handle(), other)
	e.refused(p, disable(again), socknotify.ErrNotRegistered)
	e.none(p)
	e.do(p, enable(again, "new", in, level|oneShot))
	e.none(p)
	e.deliver(peer, other, "y")
	e.wantNow(p, "new", in)
	e.do(p, remove(again))
	e.wantNow(p, "new", gone)
}

func keyReleasedByReuse(e *env) {
	p := e.port()
	var again fd
	keys := weakKeys(1, func(_ int, k *key) {
		s, peer := e.unix()
		e.do(p, enable(s, k, in, level))
		e.send(peer, "x")
		e.want(p, k, in)
		again, _ = e.reuse(s)
	})
	if !e.tied { // a tied socket's Close has let go of it
		e.kept(keys)
	}
	e.do(p, enable(again, "new", in, level))
	e.released("the key of a closed socket", keys)
	e.closeFD(again)
	runtime.KeepAlive(p)
}

func keyReleasedByOperation(e *env) {
	p := e.port()
	ops := []func(handle) reg{
		disable, remove,
		func(f handle) reg { return enable(f, "other", in, level) },
	}
	for _, op := range ops {
		for _, reused := range []bool{false, true} {
			var number fd
			keys := weakKeys(1, func(_ int, k *key) {
				s, _ := e.unix()
				number = fd(s.Handle())
				e.do(p, enable(s, k, in, level))
				if reused {
					number, _ = e.reuse(s)
				} else {
					s.Close()
				}
			})
			p.Process([]reg{op(number)}, nil, 0)
			e.released("the key of a closed socket", keys)
			if reused {
				p.Process([]reg{remove(number)}, nil, 0)
				e.now(p)
				e.closeFD(number)
			}
		}
	}
	runtime.KeepAlive(p)
}

// peerSeesClose closes under a parked waiter. A kernel may hold the socket for a moment, not for good.
func peerSeesClose(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level))
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	s.Close()
	settle(e, peer, statePeerClosed)
	p.Post("end", 0)
	e.get(w)
}

// enabledAgainAsSocket registers a handle and enables it again as a socket, whose Close ends the registration from then on.
func enabledAgainAsSocket(e *env) {
	p := e.port()
	for _, trigger := range everyWay {
		keys := weakKeys(1, func(_ int, k *key) {
			s, _ := e.unix()
			e.do(p, enable(fd(s.Handle()), k, in, trigger))
			e.do(p, enable(s, k, in, trigger))
			s.Close()
		})
		e.released("the key of a closed socket", keys)
		if n := p.Stats().Registrations; n != 0 {
			e.Errorf("%d registrations", n)
		}
	}
	runtime.KeepAlive(p)
}

// G10: duplicates that keep a closed socket alive.
var dupChecks = []check{
	both("G10", "NeverToANewKey", dupNeverToNewKey),
	both("G10", "NeverAfterReuse", dupNeverAfterReuse),
	both("G10", "NeverAfterOperation", dupNeverAfterOperation),
	both("G10", "NeverSpins", dupNeverSpins),
	both("G10", "HidesNothing", dupHidesNothing),
	both("G10", "SameSocketTwice", sameSocketTwice),
	both("G10", "NumberComesBack", dupNumberComesBack),
}

func dupNeverToNewKey(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, oldPeer := e.unix()
		alive := e.dup(s)
		e.do(p, enable(s, "old", in, trigger))
		again, peer := e.reuse(s)
		e.send(oldPeer, "x")
		settle(e, alive, stateIn)
		for _, n := range e.now(p) {
			e.check(n, "old", in) // allowed, but to no other key
		}
		e.do(p, enable(again, "new", in, level|oneShot))
		for range 20 {
			e.send(oldPeer, "x")
		}
		e.none(p)
		e.write(peer, "y")
		e.want(p, "new", in)
		e.do(p, remove(again))
		e.want(p, "new", gone)
		e.none(p)
		e.closeFD(again)
		e.closeFD(alive)
	}
}

func dupNeverAfterReuse(e *env) {
	p := e.port()
	s, oldPeer := e.unix()
	alive := e.dup(s)
	e.do(p, enable(s, "old", in|out|hangup, edge))
	again, _ := e.reuse(s)
	e.do(p, enable(again, "new", in, edge))
	before := p.Stats()
	const sent = 50
	for range sent {
		e.send(oldPeer, "x")
		if got := e.now(p); len(got) != 0 {
			e.Fatalf("an old socket's duplicate was reported: %v", got)
		}
	}
	oldPeer.Close()
	e.none(p)
	// Each arrival is at most one stale report, and the first look another.
	if n := p.Stats().Stale - before.Stale; n > sent+8 {
		e.Errorf("%d stale reports for %d arrivals", n, sent)
	}
	e.closeFD(alive)
	e.closeFD(again)
}

func dupNeverAfterOperation(e *env) {
	p := e.port()
	for _, op := range []func(handle) reg{disable, remove} {
		s, oldPeer := e.unix()
		alive := e.dup(s)
		number := fd(s.Handle())
		e.do(p, enable(s, "old", in|out, edge))
		s.Close()
		e.now(p)
		e.refused(p, op(number), socknotify.ErrBadSocket)
		for range 20 {
			e.send(oldPeer, "x")
		}
		oldPeer.Close()
		e.quiet(p)
		e.closeFD(alive)
	}
}

// dupNeverSpins lets conditions stand on a socket that only a duplicate keeps alive.
func dupNeverSpins(e *env) {
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		p := e.port()
		s, peer := e.unix()
		alive := e.dup(s)
		e.do(p, enable(s, "old", in|out|hangup, trigger))
		s.Close()
		e.send(peer, "x")
		peer.Close()
		settle(e, alive, statePeerClosed)
		e.quietSoon(p, 10) // spurious ones may come, but must end
		if n := p.Stats().Stale; n > 100 {
			e.Errorf("%d stale reports", n)
		}
		e.closeFD(alive)
	}
}

// dupHidesNothing polls for one notification while the reports of sockets that only duplicates keep alive are ahead of it.
func dupHidesNothing(e *env) {
	const olds = 3
	p := e.port()
	var numbers, alive []fd
	var peers []*socket
	for range olds {
		s, oldPeer := e.unix()
		alive, peers = append(alive, e.dup(s)), append(peers, oldPeer)
		e.do(p, enable(s, "old", in, edge))
		again, _ := e.reuse(s)
		numbers = append(numbers, again)
		e.do(p, enable(again, "new", in, edge))
	}
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot))
	for i, oldPeer := range peers {
		e.send(oldPeer, "x")
		settle(e, alive[i], stateIn)
	}
	e.deliver(peer, s, "y")
	var one [1]note
	n, err := p.Process(nil, one[:], 0)
	if n == 0 && tellsLate {
		n, err = p.Process(nil, one[:], limit)
	}
	if n != 1 || err != nil {
		e.Fatalf("Wait = %d, %v; want a notification", n, err)
	}
	e.check(one[0], "k", in)
	for i := range olds {
		e.closeFD(alive[i])
		e.closeFD(numbers[i])
	}
}

// sameSocketTwice registers a socket under both of its numbers.
func sameSocketTwice(e *env) {
	p := e.port()
	s, peer := e.unix()
	second := e.dup(s)
	e.do(p, enable(s, "first", in, level|oneShot), enable(second, "second", in, level|oneShot))
	e.deliver(peer, s, "x")
	if got := e.come(p, 2); len(got) != 2 || got[0].Key == got[1].Key {
		e.Fatalf("notifications %v; want one for each number", got)
	}
	e.do(p, remove(s))
	e.wantNow(p, "first", gone)
	e.do(p, enable(second, "second", in, level|oneShot))
	e.wantNow(p, "second", in)
	e.do(p, remove(second))
	e.wantNow(p, "second", gone)
	e.closeFD(second)
}

// dupNumberComesBack closes a registered number and gives it the same socket again.
func dupNumberComesBack(e *env) {
	p := e.port()
	s, peer := e.unix()
	alive := e.dup(s)
	number := s.Handle()
	e.do(p, enable(s, "old", in, level|oneShot))
	s.Close()
	e.refused(p, remove(fd(number)), socknotify.ErrBadSocket)
	again := e.become(number, alive)
	e.do(p, enable(again, "new", in, level|oneShot))
	e.send(peer, "x")
	e.want(p, "new", in)
	e.none(p)
	e.do(p, remove(again))
	e.wantNow(p, "new", gone)
	e.send(peer, "y")
	e.none(p)
	e.closeFD(again)
	e.closeFD(alive)
}

// G12: a socket is what the kernel says it is.
var identityChecks = []check{
	both("G12", "EnableFindsAnotherSocket", enableFindsAnother),
	both("G12", "OtherOperationsFindNothing", othersFindNothing),
	both("G12", "NoKeyMismatchWithTheDead", noMismatchWithDead),
	both("G12", "NoOtherPortOfTheDead", noOtherPortOfDead),
	both("G12", "KindOfTheNewSocket", kindOfNewSocket),
}

// enableFindsAnother enables again without knowing that the number names another socket by now.
func enableFindsAnother(e *env) {
	p := e.port()
	for _, trigger := range []socknotify.Trigger{level, edge, level | oneShot, edge | oneShot} {
		s, oldPeer := e.unix()
		e.do(p, enable(s, "k", in, trigger))
		e.send(oldPeer, "x")
		e.want(p, "k", in)
		again, peer := e.reuse(s)
		e.do(p, enable(again, "k", in, trigger))
		e.none(p)
		e.write(peer, "y")
		e.want(p, "k", in)
		if n := p.Stats().Registrations; n != 1 {
			e.Errorf("%d registrations", n)
		}
		e.do(p, remove(again))
		e.want(p, "k", gone)
		e.closeFD(again)
	}
}

func othersFindNothing(e *env) {
	p := e.port()
	for _, op := range []func(handle) reg{disable, remove} {
		s, _ := e.unix()
		e.do(p, enable(s, "k", in, level))
		again, _ := e.reuse(s)
		e.refused(p, op(again), socknotify.ErrNotRegistered)
		e.refused(p, op(again), socknotify.ErrNotRegistered)
		e.none(p)
		e.closeFD(again)
	}
}

func noMismatchWithDead(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "old", in, level), disable(s))
	again, peer := e.reuse(s)
	e.do(p, enable(again, "new", in, level|oneShot))
	e.write(peer, "x")
	e.want(p, "new", in)
	e.refused(p, enable(again, "old", in, level), socknotify.ErrKeyMismatch)
	e.closeFD(again)
}

func noOtherPortOfDead(e *env) {
	p, q := e.port(), e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "p", in, level))
	again, _ := e.reuse(s)
	e.do(q, enable(again, "q", in, level))
	e.refused(p, enable(again, "p", in, level), socknotify.ErrOtherPort)
	e.refused(p, remove(again), socknotify.ErrNotRegistered)
	e.do(q, disable(again))
	e.closeFD(again)
}

// kindOfNewSocket puts a datagram socket where a stream was, and the other way round.
func kindOfNewSocket(e *env) {
	p := e.port()
	s, _ := e.unix()
	number := s.Handle()
	e.do(p, enable(s, "stream", hangup, level))
	s.Close()
	a, b := e.datagrams()
	again, peer := e.at(number, a, b)
	e.do(p, enable(again, "datagram", in|hangup, level|oneShot))
	e.write(peer, "x")
	e.want(p, "datagram", in)
	e.closeFD(again)
	c, d := e.unix()
	again, peer = e.at(number, c, d)
	e.do(p, enable(again, "stream", hangup, level|oneShot))
	peer.Close()
	e.want(p, "stream", hangup)
	e.closeFD(again)
}
