package conformance

import (
	"io"
	"sync/atomic"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// What calls that start operations dequeue (O13).

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
