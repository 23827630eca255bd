package conformance

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
)

// These cases have goroutines with code of their own race each other on one port.

// socketsOnceEach enables one-shot registrations again and again: as many notifications as enables.
func socketsOnceEach(e *env) {
	const sockets, rounds = 8, 100
	type connection struct {
		s     *socket
		count int // owned by the holder of the notification
	}
	p := e.port()
	var finished atomic.Int32
	stop := e.workers(p, 6, 2, func(n note) {
		c := n.Key.(*connection)
		if c.count++; c.count == rounds {
			finished.Add(1)
		} else if err := apply(p, enable(c.s, c, out, level|oneShot)); err != nil {
			e.Errorf("enabling again: %v", err)
		}
	})
	all := make([]*connection, sockets)
	for i := range all {
		s, _ := e.unix()
		all[i] = &connection{s: s}
		e.do(p, enable(s, all[i], out, level|oneShot))
	}
	e.until("every round of every socket", func() bool { return finished.Load() == sockets })
	time.Sleep(pause())
	stop()
	for i, c := range all {
		if c.count != rounds {
			e.Errorf("socket %d: %d notifications for %d enables", i, c.count, rounds)
		}
	}
}

// nothingAfterRemoval removes under a flood of events. A waiter that begins to wait after the
// removal must never be given the old key, but for its EventRemove.
func nothingAfterRemoval(e *env) {
	const rounds, waiters = 300, 3
	type life struct{ over, done atomic.Bool }
	p := e.port()
	s, peer := e.unix()
	var now atomic.Pointer[life]
	now.Store(&life{})
	var late atomic.Int32
	waiter := func() error {
		buf := make([]note, 2)
		for {
			current := now.Load()
			over := current.over.Load()
			n, err := p.Process(nil, buf, -1)
			if err != nil {
				return nil
			}
			for _, got := range buf[:n] {
				l := got.Key.(*life)
				if got.Events == gone && l.done.Swap(true) || got.Events != gone && l == current && over {
					late.Add(1)
				}
			}
		}
	}
	var ended []<-chan error
	for range waiters {
		ended = append(ended, async(waiter))
	}
	for i := range rounds {
		l := now.Load()
		e.do(p, enable(s, l, in|out, []socknotify.Trigger{level, edge, level | oneShot}[i%3]))
		if i%8 == 0 {
			e.drain(s)
		}
		e.send(peer, "x")
		if i%4 == 0 {
			runtime.Gosched()
		}
		e.do(p, remove(s))
		l.over.Store(true)
		e.until("EventRemove", l.done.Load)
		now.Store(&life{})
	}
	p.Close()
	for _, ch := range ended {
		e.end(ch, "a waiter")
	}
	if n := late.Load(); n != 0 {
		e.Errorf("%d notifications after the removal", n)
	}
}

// reusedUnderWaiters goes through many lives of one number while waiters dequeue. Each life is
// either sent to or not; a silent one must never be reported.
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

// drainedUnderLoad counts what comes through to workers that vouch every time, one of which holds
// the registration at a time.
func drainedUnderLoad(e *env, trigger socknotify.Trigger) {
	total := e.rounds(20000)
	p := e.port()
	s, peer := e.unix()
	var holders, got atomic.Int32
	stop := e.workers(p, 4, 1, func(note) {
		if holders.Add(1) != 1 {
			e.Errorf("two waiters hold the notification of a one-shot registration")
		}
		data, _ := receiveAll(s)
		got.Add(int32(len(data)))
		holders.Add(-1)
		apply(p, drained(s, "k", in, trigger))
	})
	e.do(p, enable(s, "k", in, trigger))
	for i := range total {
		for {
			if n, _ := peer.Send([]byte("x")); n == 1 {
				break
			}
			await.Pause(10 * time.Microsecond) // there is no room
		}
		if i%16 == 0 {
			runtime.Gosched()
		}
		if i%1000 == 0 {
			e.until("what was sent is received", func() bool { return int(got.Load()) == i+1 })
		}
	}
	e.until("everything is received", func() bool { return int(got.Load()) == total })
	stop()
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
		for len(e.drain(s)) == 0 {
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

// acceptRemoveUnderLoad removes while waiters accept: each connection is either delivered, before
// the EventRemove, or still the listener's.
func acceptRemoveUnderLoad(e *env) {
	const clients = 8
	for range 20 {
		p, l := e.port(), e.listener()
		var got, removed atomic.Int32
		stop := e.workers(p, 3, 2, func(nt note) {
			if nt.Events == gone {
				removed.Add(1)
			} else if s, _ := nt.Accepted(); s != nil {
				got.Add(1)
				s.Close()
			}
		})
		e.must(p.Accept(l.Socket, "l", 2))
		var all []*socket
		for range clients {
			all = append(all, e.fresh())
		}
		dialed := async(func() error {
			for _, c := range all {
				e.connect(c, l.LocalAddr())
			}
			return nil
		})
		e.do(p, remove(l))
		e.end(dialed, "the clients")
		e.until("EventRemove", func() bool { return removed.Load() == 1 })
		left := 0
		e.until("the others are in the backlog", func() bool {
			if s, err := l.Accept(); err == nil {
				s.Close()
				left++
			}
			return int(got.Load())+left == clients
		})
		stop()
	}
}
