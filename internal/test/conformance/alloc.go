package conformance

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify"
)

// C7: nothing is allocated in the steady state.
var allocCases = map[string]func(*env){
	"C7/Poll":            allocPoll,
	"C7/Timeout":         allocTimeout,
	"C7/Post":            allocPost,
	"C7/EnableAndWait":   allocEnableAndWait,
	"C7/DrainedEnable":   allocDrained,
	"C7/PersistentLevel": allocPersistent,
	"C7/Conn":            allocConn,
	"C7/ParkedWaiters":   allocParked,
}

// allocates fails if f, once it has been run, still allocates.
func (e *env) allocates(f func()) {
	e.Helper()
	for range 10 {
		f()
	}
	n := testing.AllocsPerRun(200, f)
	if raceDetector {
		return // it allocates, and makes pools forget
	}
	if n != 0 {
		e.Errorf("%v allocations each time", n)
	}
}

func allocPoll(e *env) {
	p := e.port()
	buf := make([]note, 8)
	e.allocates(func() { p.Process(nil, buf, 0) })
}

func allocTimeout(e *env) {
	p := e.port()
	buf := make([]note, 8)
	e.allocates(func() { p.Process(nil, buf, 10*time.Microsecond) })
}

func allocPost(e *env) {
	p := e.port()
	buf := make([]note, 8)
	k := any(&key{"k"})
	e.allocates(func() {
		for i := range uintptr(20) {
			p.Post(k, ^i)
		}
		for got := 0; got < 20; {
			n, _ := p.Process(nil, buf, 0)
			got += n
		}
	})
}

func allocEnableAndWait(e *env) {
	p := e.port()
	s, peer := e.unix()
	buf := make([]note, 8)
	regs := []reg{enable(s, &key{"k"}, in, level|oneShot)}
	x, b := []byte("x"), make([]byte, 16)
	e.allocates(func() {
		peer.Send(x)
		if n, err := p.Process(regs, buf, limit); n != 1 || regs[0].Result != nil {
			e.Fatalf("Process = %d, %v", n, err)
		}
		s.Recv(b)
	})
}

func allocDrained(e *env) {
	p := e.port()
	s, peer := e.unix()
	buf := make([]note, 8)
	regs := []reg{drained(s, &key{"k"}, in, edge|oneShot)}
	x, b := []byte("x"), make([]byte, 16)
	e.allocates(func() {
		p.Process(regs, nil, 0)
		peer.Send(x)
		if n, err := p.Process(nil, buf, limit); n != 1 {
			e.Fatalf("Wait = %d, %v", n, err)
		}
		s.Recv(b)
		s.Recv(b)
	})
}

func allocPersistent(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, &key{"k"}, out, level))
	buf := make([]note, 8)
	e.allocates(func() {
		if n, err := p.Process(nil, buf, limit); n != 1 {
			e.Fatalf("Wait = %d, %v", n, err)
		}
	})
}

func allocConn(e *env) {
	p := e.port()
	c, _ := e.netPair("tcp")
	buf := make([]note, 8)
	regs := []reg{{Conn: c, Key: &key{"k"}, Filter: out, Op: socknotify.OpEnable, Trigger: level | oneShot}}
	e.allocates(func() {
		if n, err := p.Process(regs, buf, limit); n != 1 || regs[0].Result != nil {
			e.Fatalf("Process = %d, %v; %v", n, err, regs[0].Result)
		}
	})
}

func allocParked(e *env) {
	p := e.port()
	const waiters = 4
	turn := make(chan note)
	stop := e.workers(p, waiters, 1, func(n note) { turn <- n })
	s, peer := e.unix()
	regs := []reg{enable(s, &key{"k"}, in, level|oneShot)}
	x, b := []byte("x"), make([]byte, 16)
	e.allocates(func() {
		p.Post(nil, 1)
		<-turn
		p.Process(regs, nil, 0)
		peer.Send(x)
		<-turn
		s.Recv(b)
	})
	stop()
}
