package conformance

import (
	"runtime"

	"github.com/socknotify/socknotify/overlapped"
)

// O14: receives from a pool.
var operationPoolCases = map[string]func(*env){
	"O14/HoldNone": poolHoldsNone,
	"O12/Pooled":   poolAlloc,
}

// poolHoldsNone has ten thousand receives wait.
func poolHoldsNone(e *env) {
	p := e.port()
	const sockets, each, size = 100, 100, 64 << 10
	pool := overlapped.NewBuffers(size)
	ops := make([]op, sockets*each)
	var conns [sockets][2]*socket
	for i := range conns {
		conns[i][0], conns[i][1] = e.unix()
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	var list []opEntry
	for i := range ops {
		list = append(list, overlapped.RecvPooledRequest[any](conns[i%sockets][0].Socket, i, pool, &ops[i]))
	}
	e.started(p, list...)
	e.none(p)
	if grown := heap() - before; grown > int64(len(ops))*size/100 {
		e.Errorf("%d bytes for %d receives of %d bytes that wait", grown, len(ops), size)
	}
	for i := range conns {
		e.deliver(conns[i][1], conns[i][0], "x")
	}
	for range conns {
		got := e.next(p)
		o := overlapped.Of(&got)
		if n, err := o.Result(); n != 1 || err != nil || string(o.Buffer()) != "x" {
			e.Fatalf("%d, %v, %q", n, err, o.Buffer())
		}
		pool.Put(o.Buffer())
	}
}

func poolAlloc(e *env) {
	p := e.port()
	pool := overlapped.NewBuffers(4 << 10)
	var conns [20]echoConn
	var peers [20]*socket
	ops := make([]opEntry, 0, len(conns))
	for i := range conns {
		conns[i].s, peers[i] = e.tcp()
	}
	out := make([]note, 64)
	x := []byte("x")
	e.allocates(func() {
		for i := range conns {
			ops = append(ops, overlapped.RecvPooledRequest[any](conns[i].s.Socket, &conns[i], pool, &conns[i].recv))
		}
		if _, err := overlapped.Process(p, ops, nil, 0); err != nil {
			e.Fatalf("ProcessOperations: %v", err)
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
			for _, got := range out[:n] {
				pool.Put(overlapped.Of(&got).Buffer())
			}
			received += n
		}
	})
}
