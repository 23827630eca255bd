package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// C8: the memory model. These cases share variables without any other synchronization; the race
// detector judges them.
var memoryCases = map[string]func(*env){
	"C8/Post":                memoryPost,
	"C8/Enable":              memoryEnable,
	"C8/OneShotOwner":        func(e *env) { memoryOneShot(e, level|oneShot, false) },
	"C8/OneShotOwnerDrained": func(e *env) { memoryOneShot(e, edge|oneShot, true) },
	"C8/Remove":              memoryRemove,
}

type cell struct{ value int }

func memoryPost(e *env) {
	p := e.port()
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	c := &cell{}
	go func() {
		c.value = 42
		p.Post(c, 0)
	}()
	if r := e.get(w); r.notes[0].Key.(*cell).value != 42 {
		e.Errorf("the waiter does not see what came before Post")
	}
}

func memoryEnable(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.send(peer, "x")
	w := e.wait(p, 1, -1)
	e.parked(p, 1)
	c := &cell{}
	done := async(func() error {
		c.value = 1
		regs := []reg{enable(s, c, in, level|oneShot)}
		_, err := p.Process(regs, nil, 0)
		return err
	})
	var got int
	r := <-w
	got = r.notes[0].Key.(*cell).value
	if got != 1 {
		e.Errorf("the waiter does not see what came before the enable")
	}
	e.end(done, "enabling")
}

// memoryOneShot hands a plain counter from holder to holder.
func memoryOneShot(e *env, trigger socknotify.Trigger, vouch bool) {
	const rounds = 300
	p := e.port()
	s, peer := e.unix()
	type state struct {
		s     *socket
		count int
	}
	var finished atomic.Bool
	var broken atomic.Pointer[error]
	var b [16]byte
	stop := e.workers(p, 4, 1, func(n note) {
		c := n.Key.(*state)
		if n.Events == gone {
			if c.count != rounds {
				e.Errorf("count %d at the removal; want %d", c.count, rounds)
			}
			finished.Store(true)
			return
		}
		received := 0
		for {
			n, err := c.s.Recv(b[:1])
			if err != nil {
				break
			}
			received += n
		}
		r := enable(c.s, c, in, trigger)
		r.Drained = vouch
		if c.count += received; c.count == rounds {
			r = remove(c.s)
		} else if received > 0 {
			if _, err := peer.Send([]byte("x")); err != nil {
				broken.Store(&err)
			}
		}
		regs := []reg{r}
		p.Process(regs, nil, 0)
		if regs[0].Result != nil {
			broken.Store(&regs[0].Result)
		}
	})
	e.do(p, enable(s, &state{s: s}, in, trigger))
	e.send(peer, "x")
	e.until("the last round", func() bool { return finished.Load() || broken.Load() != nil })
	stop()
	if err := broken.Load(); err != nil {
		e.Fatalf("%v", *err)
	}
}

func memoryRemove(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.send(peer, "x")
	var finished atomic.Bool
	stop := e.workers(p, 2, 1, func(n note) {
		c := n.Key.(*cell)
		if n.Events == gone {
			if c.value != 7 {
				e.Errorf("EventRemove does not show what its remover did")
			}
			finished.Store(true)
			return
		}
		c.value = 7
		p.Process([]reg{remove(s)}, nil, 0)
	})
	e.do(p, enable(s, &cell{}, in, level|oneShot))
	e.until("the removal", finished.Load)
	stop()
}
