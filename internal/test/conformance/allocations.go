package conformance

import (
	"testing"
	"time"

	"github.com/socknotify/socknotify/overlapped"
)

// C7 and O12: nothing is allocated in the steady state.

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

// waits dequeues so many notifications.
func (e *env) waits(p *port, out []note, count int) {
	for got := 0; got < count; {
		n, err := p.Process(nil, out, limit)
		if err != nil {
			e.Fatalf("Process: %v", err)
		}
		got += n
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
		e.waits(p, buf, 20)
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
		e.waits(p, buf, 1)
		s.Recv(b)
		s.Recv(b)
	})
}

func allocPersistent(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, &key{"k"}, out, level))
	buf := make([]note, 8)
	e.allocates(func() { e.waits(p, buf, 1) })
}

func allocConn(e *env) {
	p := e.port()
	c, _ := e.netPair("tcp")
	buf := make([]note, 8)
	regs := []reg{enableConn(c, &key{"k"}, out, level|oneShot)}
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

func allocEcho(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		var recv, send op
		b, x := make([]byte, 64), []byte("x")
		out := make([]note, 4)
		k := any(&key{"k"})
		e.allocates(func() {
			overlapped.Recv(p, s.Socket, k, b, &recv)
			peer.Send(x)
			e.waits(p, out, 1)
			overlapped.Send(p, s.Socket, k, b[:1], &send)
			e.waits(p, out, 1)
			peer.Recv(x)
		})
	}
}

func allocDatagrams(e *env) {
	p := e.port()
	s, peer := e.udp()
	var recv, send op
	b, x := make([]byte, 64), []byte("x")
	out := make([]note, 4)
	k := any(&key{"k"})
	e.allocates(func() {
		overlapped.RecvFrom(p, s.Socket, k, b, &recv)
		overlapped.Send(p, peer.Socket, k, x, &send)
		e.waits(p, out, 2)
	})
}

func allocFiles(e *env) {
	p := e.port()
	f := e.file("hello")
	var o op
	b := make([]byte, 5)
	out := make([]note, 4)
	k := any(&key{"k"})
	e.allocates(func() {
		overlapped.ReadAt(p, f, k, b, 0, &o)
		e.waits(p, out, 1)
	})
}

// echoConns makes connections whose peers send.
func (e *env) echoConns() (conns []*echoConn, peers []*socket) {
	for range 20 {
		s, peer := e.tcp()
		conns = append(conns, &echoConn{s: s, buf: make([]byte, 64)})
		peers = append(peers, peer)
	}
	return conns, peers
}

func allocBatch(e *env) {
	p := e.port()
	conns, peers := e.echoConns()
	ops, out := make([]opEntry, 0, len(conns)), make([]note, 64)
	x := []byte("x")
	e.allocates(func() {
		for i, c := range conns {
			ops = append(ops, overlapped.RecvRequest[any](c.s.Socket, c, c.buf, &c.recv))
			peers[i].Send(x)
		}
		for sent := 0; sent < len(conns); {
			n, err := overlapped.Process(p, ops, out, limit)
			if err != nil {
				e.Fatalf("Process: %v", err)
			}
			ops = ops[:0]
			for i := range out[:n] {
				if c := out[i].Key.(*echoConn); overlapped.Of(&out[i]) == &c.send {
					sent++
				} else {
					next, _ := c.next(&out[i])
					ops = append(ops, next)
				}
			}
		}
	})
}

func allocPooled(e *env) {
	p, pool := e.port(), overlapped.NewBuffers(4<<10)
	conns, peers := e.echoConns()
	ops, out := make([]opEntry, 0, len(conns)), make([]note, 64)
	x := []byte("x")
	e.allocates(func() {
		for _, c := range conns {
			ops = append(ops, overlapped.RecvPooledRequest[any](c.s.Socket, c, pool, &c.recv))
		}
		if _, err := overlapped.Process(p, ops, nil, 0); err != nil {
			e.Fatalf("Process: %v", err)
		}
		ops = ops[:0]
		for i := range conns {
			peers[i].Send(x)
		}
		for received := 0; received < len(conns); {
			n, err := p.Process(nil, out, limit)
			if err != nil {
				e.Fatalf("Wait: %v", err)
			}
			for i := range out[:n] {
				pool.Put(overlapped.Of(&out[i]).Buffer())
			}
			received += n
		}
	})
}
