package conformance

import (
	"errors"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// C8 and O12: the memory model. These cases share variables without any other synchronization; the
// race detector judges them.

type cell struct{ value int }

// seen starts what brings a notification to another goroutine, which must see the value of its key.
func (e *env) seen(value int, start func(p *port, c *cell) error) {
	p := e.port()
	waiter := async(func() error {
		var one [1]note
		_, err := p.Process(nil, one[:], -1)
		if err == nil && one[0].Key.(*cell).value != value {
			err = errors.New("it does not see what came before")
		}
		return err
	})
	e.parked(p, 1)
	started := async(func() error {
		c := &cell{}
		c.value = value
		return start(p, c)
	})
	e.end(waiter, "the waiter")
	e.end(started, "starting")
}

func memoryPost(e *env) {
	e.seen(42, func(p *port, c *cell) error { return p.Post(c, 0) })
}

func memoryEnable(e *env) {
	s, peer := e.unix()
	e.send(peer, "x")
	e.seen(1, func(p *port, c *cell) error { return apply(p, enable(s, c, in, level|oneShot)) })
}

// memoryOneShot hands a plain counter from holder to holder.
func memoryOneShot(e *env, trigger socknotify.Trigger, vouch bool) {
	const rounds = 300
	type state struct {
		s     *socket
		count int
	}
	p := e.port()
	s, peer := e.unix()
	var finished atomic.Bool
	stop := e.workers(p, 4, 1, func(n note) {
		c := n.Key.(*state)
		if n.Events == gone {
			if c.count != rounds {
				e.Errorf("count %d at the removal; want %d", c.count, rounds)
			}
			finished.Store(true)
			return
		}
		got, _ := receiveAll(c.s)
		r := enable(c.s, c, in, trigger)
		r.Drained = vouch
		if c.count += len(got); c.count == rounds {
			r = remove(c.s)
		} else if len(got) > 0 {
			if _, err := peer.Send([]byte("x")); err != nil {
				e.Errorf("send: %v", err)
			}
		}
		if err := apply(p, r); err != nil {
			e.Errorf("%v", err)
		}
	})
	e.do(p, enable(s, &state{s: s}, in, trigger))
	e.send(peer, "x")
	e.until("the last round", finished.Load)
	stop()
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
		apply(p, remove(s))
	})
	e.do(p, enable(s, &cell{}, in, level|oneShot))
	e.until("the removal", finished.Load)
	stop()
}

// opHappensBefore lets the race detector look at what goes with an operation.
func opHappensBefore(e *env) {
	type state struct {
		o     op
		b     [8]byte
		count int
	}
	const rounds = 100
	p := e.port()
	s, peer := e.unix()
	done := make(chan *state)
	stop := e.workers(p, 2, 1, func(got note) {
		st := got.Key.(*state)
		st.count++
		st.b[7]++
		done <- st
	})
	st := new(state)
	for i := range rounds {
		st.count++
		if i%2 == 0 {
			e.recv(p, s, st, st.b[:4], &st.o)
			e.send(peer, "x")
		} else {
			e.send(peer, "x")
			e.recv(p, s, st, st.b[:4], &st.o)
		}
		<-done
	}
	if st.count != 2*rounds {
		e.Errorf("count = %d", st.count)
	}
	stop()
}
