package conformance

import (
	"runtime"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// G9: sockets that are closed without being removed, and numbers that come back.
var reuseCases = map[string]func(*env){
	"G9/ReusedUnderWaiters": reusedUnderWaiters,
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
