package conformance

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// What calls that start operations dequeue (O13).

func batchTimeOut(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 4)
	for _, timeout := range []time.Duration{0, 5 * time.Millisecond} {
		ops := []opEntry{overlapped.RecvRequest[any](s.Socket, "k", b, &o)}
		begin := time.Now()
		n, err := overlapped.Process(p, ops, make([]note, 2), timeout)
		if n != 0 || err != socknotify.ErrTimeout || ops[0].Result != nil || time.Since(begin) < timeout {
			e.Fatalf("ProcessOperations = %d, %v; Result %v", n, err, ops[0].Result)
		}
		e.deliver(peer, s, "x")
		e.received(p, "k", &o, b, "x")
	}
}

func batchContext(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	b := make([]byte, 4)
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(e.Context())
	ops := []opEntry{overlapped.RecvRequest[any](s.Socket, "k", b, &o)}
	w := e.start(func(buf []note) (int, error) { return overlapped.ProcessContext(ctx, p, ops, buf) }, 2)
	e.parked(p, 1)
	cancel(why)
	if r := e.get(w); r.err != why || ops[0].Result != nil {
		e.Fatalf("%v, %v; Result %v", r.notes, r.err, ops[0].Result)
	}
	var send op
	ops = []opEntry{overlapped.SendRequest[any](s.Socket, "s", b[:1], &send)}
	if n, err := overlapped.ProcessContext(ctx, p, ops, make([]note, 2)); n != 0 || err != why || ops[0].Result != nil {
		e.Fatalf("with a context that is done = %d, %v; Result %v", n, err, ops[0].Result)
	}
	e.moved(p, "s", &send)
	e.deliver(peer, s, "x")
	if n, err := overlapped.ProcessContext(e.Context(), p, nil, make([]note, 2)); n != 1 || err != nil {
		e.Fatalf("ProcessOperationsContext = %d, %v", n, err)
	}
}

// batchEntries dequeues no more than fits, and loses nothing.
func batchEntries(e *env) {
	p := e.port()
	const many = 40
	var conns [many][2]*socket
	var recvs, sends [many]op
	var list []opEntry
	b := make([]byte, many)
	for i := range conns {
		conns[i][0], conns[i][1] = e.unix()
		e.recv(p, conns[i][0], "r", b[i:i+1], &recvs[i])
		e.deliver(conns[i][1], conns[i][0], "x")
		list = append(list, overlapped.SendRequest[any](conns[i][0].Socket, "s", []byte("y"), &sends[i]))
	}
	got := 0
	for ; got < 2*many; list = nil {
		out := make([]note, 7, 9)
		out[:9][7].Data, out[:9][8].Data = 77, 88
		n, err := overlapped.Process(p, list, out, limit)
		if got += n; err != nil || out[:9][7].Data != 77 || out[:9][8].Data != 88 {
			e.Fatalf("ProcessOperations = %d, %v", n, err)
		}
	}
	if e.none(p); got != 2*many {
		e.Fatalf("%d completions; want %d", got, 2*many)
	}
}

// batchManyWaiters echoes on many connections with many waiters, each of which starts a batch's next operations in
// its next call.
func batchManyWaiters(e *env) {
	p := e.port()
	const conns, rounds, waiters = 24, 50, 3
	var ended atomic.Int32
	loop := func() error {
		out := make([]note, 16)
		var ops []opEntry
		for {
			n, err := overlapped.Process(p, ops, out, -1)
			if err != nil {
				return err
			}
			for i := range ops {
				if ops[i].Result != nil {
					return ops[i].Result
				}
			}
			ops = ops[:0]
			for _, got := range out[:n] {
				if got.Kind() == socknotify.KindPosted {
					return p.Post(nil, 0) // for the others
				}
				c := got.Key.(*echoConn)
				switch n, err := overlapped.Of(&got).Result(); {
				case err == io.EOF:
					ended.Add(1)
				case err != nil:
					return err
				case overlapped.Of(&got) == &c.send:
					ops = append(ops, overlapped.RecvRequest[any](c.s.Socket, c, c.buf, &c.recv))
				default:
					ops = append(ops, overlapped.SendRequest[any](c.s.Socket, c, c.buf[:n], &c.send))
				}
			}
		}
	}
	var clients, loops []<-chan error
	for range conns {
		s, peer := e.tcp()
		c := &echoConn{s: s, buf: make([]byte, 64)}
		e.recv(p, s, c, c.buf, &c.recv)
		clients = append(clients, async(func() error { return echoed(peer.Socket, rounds) }))
	}
	for range waiters {
		loops = append(loops, async(loop))
	}
	for _, c := range clients {
		e.end(c, "a client")
	}
	e.until("every stream has ended", func() bool { return ended.Load() == conns })
	p.Post(nil, 0)
	for _, l := range loops {
		e.end(l, "a loop")
	}
}

func batchAlloc(e *env) {
	p := e.port()
	var conns [20]echoConn
	var peers [20]*socket
	ops := make([]opEntry, 0, len(conns))
	for i := range conns {
		conns[i].s, peers[i] = e.tcp()
		conns[i].buf = make([]byte, 64)
	}
	out := make([]note, 64)
	x := []byte("x")
	e.allocates(func() {
		for i := range conns {
			ops = append(ops, overlapped.RecvRequest[any](conns[i].s.Socket, &conns[i], conns[i].buf, &conns[i].recv))
			peers[i].Send(x)
		}
		for sent := 0; sent < len(conns); {
			n, err := overlapped.Process(p, ops, out, limit)
			if err != nil {
				e.Fatalf("ProcessOperations: %v", err)
			}
			ops = ops[:0]
			for _, got := range out[:n] {
				if c := got.Key.(*echoConn); overlapped.Of(&got) == &c.recv {
					ops = append(ops, overlapped.SendRequest[any](c.s.Socket, got.Key, c.buf[:1], &c.send))
				} else {
					sent++
				}
			}
		}
	})
}
