package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// T1 and T4 to T6: levels, and what is common to all triggers.
var levelCases = map[string]func(*env){
	"T4/EchoWithManyWorkers": echoWorkers,
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
	"T2/Listener":          edgeListener,
	"T2/NoneLostUnderLoad": edgeUnderLoad,
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
	"T7/AcrossWaiters": edgeOneShotAcrossWaiters,
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
