package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// T1 and T4 to T6: levels, and what is common to all triggers.
var levelCases = map[string]func(*env){
	"T1/ForSleepersBesideAPoll": forSleepersBesidePoll,
	"T1/AmongManySockets":       levelAmongMany,
	"T4/EchoWithManyWorkers":    echoWorkers,
}

// forSleepersBesidePoll has a call that does not wait take the notification of a level that it has
// enabled itself; a waiter must be notified of the level as well.
func forSleepersBesidePoll(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	buf := make([]note, 4)
	for range 50 {
		w := e.wait(p, 1, -1)
		e.parked(p, 1)
		regs := []reg{enable(s, "k", in, level)}
		_, err := p.Process(regs, buf, 0)
		if err != nil && !errors.Is(err, socknotify.ErrTimeout) || regs[0].Result != nil {
			e.Fatalf("Process: %v; %v", err, regs[0].Result)
		}
		if r := e.get(w); len(r.notes) != 1 {
			e.Fatalf("Wait = %v, %v", r.notes, r.err)
		}
		e.do(p, disable(s))
	}
}

// levelAmongMany keeps many levels up and has room for few: each must have its turn.
func levelAmongMany(e *env) {
	const sockets = 40
	p := e.port()
	for i := range sockets {
		s, _ := e.unix()
		e.do(p, enable(s, i, out, level))
	}
	seen := map[any]bool{}
	buf := make([]note, 3)
	for range 100 * sockets {
		n, err := p.Process(nil, buf, limit)
		if err != nil {
			e.Fatalf("Wait: %v", err)
		}
		for _, got := range buf[:n] {
			seen[got.Key] = true
		}
		if len(seen) == sockets {
			return
		}
	}
	e.Errorf("%d of %d sockets have had a turn", len(seen), sockets)
}

// echoWorkers is the pattern itself: workers that register again in the call that dequeues.
func echoWorkers(e *env) {
	const connections, workers, rounds = 12, 4, 50
	type connection struct {
		s    *socket
		busy atomic.Int32
	}
	p := e.port()
	var failed atomic.Pointer[string]
	fail := func(format string, args ...any) {
		s := fmt.Sprintf(format, args...)
		failed.Store(&s)
	}
	worker := func() error {
		var regs []reg
		buf := make([]note, 3)
		b := make([]byte, 64)
		for {
			n, err := p.Process(regs, buf, -1)
			if errors.Is(err, socknotify.ErrClosed) {
				return nil
			}
			for _, r := range regs {
				if r.Result != nil {
					fail("Result: %v", r.Result)
				}
			}
			regs = regs[:0]
			for _, got := range buf[:n] {
				c := got.Key.(*connection)
				if c.busy.Add(1) != 1 {
					fail("two workers hold one connection")
				}
				m, err := c.s.Recv(b)
				if err == nil {
					_, err = c.s.Send(b[:m])
				}
				if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
					fail("echo: %v", err)
				}
				c.busy.Add(-1)
				regs = append(regs, enable(c.s, c, in, level|oneShot))
			}
		}
	}
	var all []<-chan error
	for range workers {
		all = append(all, async(worker))
	}
	q := e.port() // for the clients
	left := make([]int, connections)
	peers := make([]*socket, connections)
	for i := range connections {
		s, peer := e.unix()
		e.do(p, enable(s, &connection{s: s}, in, level|oneShot))
		e.do(q, enable(peer, i, in, level|oneShot))
		peers[i], left[i] = peer, rounds
		e.send(peer, "ping")
	}
	for open := connections; open > 0; {
		n := e.next(q)
		if failed.Load() != nil {
			break
		}
		i := n.Key.(int)
		if got := e.drain(peers[i]); got != "ping" {
			e.Fatalf("connection %d echoes %q", i, got)
		}
		if left[i]--; left[i] == 0 {
			open--
			continue
		}
		e.send(peers[i], "ping")
		e.do(q, enable(peers[i], i, in, level|oneShot))
	}
	p.Close()
	for _, ch := range all {
		e.end(ch, "a worker")
	}
	if s := failed.Load(); s != nil {
		e.Fatalf("%s", *s)
	}
}

// T2: edges. On a kernel without edges the registration is enabled again after each draining.
var edgeCases = map[string]func(*env){
	"T2/OneDirectionAfterTheOther": oneAfterTheOther,
	"T2/Listener":                  edgeListener,
	"T2/NoneLostUnderLoad":         edgeUnderLoad,
}

// oneAfterTheOther has the second direction change while the first one is still undrained.
func oneAfterTheOther(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.fill(s)
	e.do(p, enable(s, "k", in|out, edge))
	e.send(peer, "x")
	if n := e.next(p); n.Events&in == 0 {
		e.Fatalf("notification %v; want IN", n.Events)
	}
	e.drain(peer) // makes room; s has not been read
	var got events
	for got&out == 0 {
		got |= e.next(p).Events
	}
}

func edgeListener(e *env) {
	p := e.port()
	l := e.listener()
	e.do(p, enable(l, "l", in, edge))
	for range 5 {
		for range 3 {
			e.connect(e.fresh(), l.LocalAddr())
		}
		for got := 0; got < 3; {
			e.want(p, "l", in)
			for {
				s, err := l.Accept()
				if errors.Is(err, sock.ErrWouldBlock) {
					break
				}
				e.keep(s, err)
				got++
			}
			e.again(p, l, "l", in, edge)
		}
		for len(e.now(p)) > 0 {
			e.again(p, l, "l", in, edge)
		}
	}
}

// edgeUnderLoad counts the bytes that come through, in bursts, to a reader that acts on edges alone.
func edgeUnderLoad(e *env) {
	const total = 1 << 20
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, edge))
	sender := async(func() error {
		r := rand.New(rand.NewPCG(1, 2))
		b := make([]byte, 8192)
		for sent := 0; sent < total; {
			n, err := peer.Send(b[:min(1+r.IntN(len(b)), total-sent)])
			if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
				return err
			}
			sent += n
		}
		return nil
	})
	for got := 0; got < total; {
		e.want(p, "k", in)
		got += len(e.drain(s))
		e.again(p, s, "k", in, edge)
	}
	e.end(sender, "the sender")
}

// T3 and T7: one-shot.
var oneShotCases = map[string]func(*env){
	"T3/AcrossWaiters":  oneAcrossWaiters,
	"T3/OneWhenItHolds": oneWhenItHolds,
	"T7/AcrossWaiters":  edgeOneShotAcrossWaiters,
}

func oneAcrossWaiters(e *env) {
	const waiters = 6
	for range 20 {
		p := e.port()
		s, peer := e.unix()
		e.do(p, enable(s, "k", in, level|oneShot))
		var all []<-chan result
		for range waiters {
			all = append(all, e.wait(p, 2, -1))
		}
		sender := async(func() error {
			for range 20 {
				if _, err := peer.Send([]byte("x")); err != nil {
					return err
				}
			}
			return nil
		})
		e.end(sender, "the sender")
		e.parked(p, waiters-1)
		p.Close()
		got := 0
		for _, ch := range all {
			got += len(e.get(ch).notes)
		}
		if got != 1 {
			e.Fatalf("%d notifications for one enable", got)
		}
	}
}

// oneWhenItHolds enables beside waiters, over and over, a socket whose condition stands.
func oneWhenItHolds(e *env) {
	const rounds = 500
	p := e.port()
	s, peer := e.unix()
	e.send(peer, "x")
	heard := make(chan note, rounds)
	stop := e.workers(p, 3, 1, func(n note) { heard <- n })
	for i := range rounds {
		e.do(p, enable(s, "k", in, level|oneShot))
		select {
		case n := <-heard:
			e.check(n, "k", in)
		case <-time.After(limit):
			e.Fatalf("enable %d brought no notification", i)
		}
	}
	stop()
	if n := len(heard); n != 0 {
		e.Errorf("%d notifications too many", n)
	}
}

func edgeOneShotAcrossWaiters(e *env) {
	const total = 2000
	p := e.port()
	s, peer := e.unix()
	var holders, received atomic.Int32
	var broken atomic.Bool
	stop := e.workers(p, 4, 1, func(n note) {
		if holders.Add(1) != 1 {
			broken.Store(true)
		}
		var b [64]byte
		for {
			n, err := s.Recv(b[:])
			if err != nil {
				break
			}
			received.Add(int32(n))
		}
		holders.Add(-1)
		p.Process([]reg{drained(s, "k", in, edge|oneShot)}, nil, 0)
	})
	e.do(p, enable(s, "k", in, edge|oneShot))
	for i := range total {
		e.send(peer, "x")
		if i%50 == 0 {
			e.until("what was sent is received", func() bool { return int(received.Load()) == i+1 })
		}
	}
	e.until("everything is received", func() bool { return received.Load() == total })
	stop()
	if broken.Load() {
		e.Errorf("two waiters held the notification of a one-shot registration")
	}
}
