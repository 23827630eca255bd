package conformance

import (
	"io"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

// O14: receives from a pool.
var operationPoolChecks = []check{
	ofSocks("O14", "HoldNone", poolHoldsNone),
	ofSocks("O14", "Received", poolReceived),
	ofSocks("O14", "Nothing", poolNothing),
	ofSocks("O14", "Order", poolOrder),
	ofSocks("O14", "Datagrams", poolDatagrams),
	ofSocks("O14", "Invalid", poolInvalid),
	ofSocks("O12", "Pooled", poolAlloc),
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

func poolReceived(e *env) {
	p := e.port()
	pool := overlapped.NewBuffers(4)
	var o op
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		for _, early := range []bool{true, false} {
			if early {
				e.deliver(peer, s, "hello")
			}
			e.pooled(p, s, "k", pool, &o)
			if !early {
				e.none(p)
				e.deliver(peer, s, "hello")
			}
			for _, want := range []string{"hell", "o"} {
				if n := e.moved(p, "k", &o); n != len(want) || string(o.Buffer()) != want {
					e.Fatalf("received %d, %q; want %q", n, o.Buffer(), want)
				}
				pool.Put(o.Buffer())
				if want == "hell" {
					e.pooled(p, s, "k", pool, &o)
				}
			}
		}
	}
	b := make([]byte, 4)
	s, peer := e.unix()
	e.deliver(peer, s, "x")
	e.recv(p, s, "k", b, &o)
	if e.received(p, "k", &o, b, "x"); o.Buffer() != nil {
		e.Errorf("a receive with its own buffer has one of a pool's: %q", o.Buffer())
	}
}

func (e *env) pooled(p *port, s *socket, k any, pool *overlapped.Buffers, o *op) {
	e.Helper()
	if err := overlapped.RecvPooled(p, s.Socket, k, pool, o); err != nil {
		e.Fatalf("RecvPooled: %v", err)
	}
}

// poolNothing completes receives that have received nothing.
func poolNothing(e *env) {
	p := e.port()
	pool := overlapped.NewBuffers(16)
	s, peer := e.tcp()
	reset, resetPeer := e.tcp()
	closed, _ := e.tcp()
	var o, canceled, broken, ended op
	e.pooled(p, s, "k", pool, &o)
	e.pooled(p, s, "c", pool, &canceled)
	e.pooled(p, reset, "reset", pool, &broken)
	e.pooled(p, closed, "closed", pool, &ended)
	e.cancel(p, &canceled)
	e.failed(p, "c", &canceled, overlapped.ErrCanceled)
	closed.Close()
	e.failed(p, "closed", &ended, socknotify.ErrBadSocket)
	e.shut(s, peer)
	e.failed(p, "k", &o, io.EOF)
	e.reset(reset, resetPeer)
	e.failed(p, "reset", &broken)
	for _, o := range []*op{&o, &canceled, &broken, &ended} {
		if o.Buffer() != nil {
			e.Errorf("a buffer of %d bytes", len(o.Buffer()))
		}
	}
}

func poolOrder(e *env) {
	p := e.port()
	pool := overlapped.NewBuffers(1)
	s, peer := e.unix()
	var ops [4]op
	b := make([]byte, 1)
	for i := range ops {
		if i == 2 {
			e.recv(p, s, i, b, &ops[i])
			continue
		}
		e.pooled(p, s, i, pool, &ops[i])
	}
	e.deliver(peer, s, "abcd")
	for i := range ops {
		e.moved(p, i, &ops[i])
		got := ops[i].Buffer()
		if i == 2 {
			got = b
		}
		if string(got) != string(rune('a'+i)) {
			e.Fatalf("receive %d has %q", i, got)
		}
	}
}

func poolDatagrams(e *env) {
	p := e.port()
	pool := overlapped.NewBuffers(4)
	s, peer := e.datagrams()
	var o op
	for sent, want := range map[string]string{"two": "two", "three": "thre"} {
		e.pooled(p, s, "k", pool, &o)
		e.none(p)
		e.deliver(peer, s, sent)
		if e.moved(p, "k", &o); string(o.Buffer()) != want {
			e.Fatalf("received %q; want %q", o.Buffer(), want)
		}
		pool.Put(o.Buffer())
	}
}

func poolInvalid(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	for _, pool := range []*overlapped.Buffers{nil, overlapped.NewBuffers(0), overlapped.NewBuffers(-1)} {
		e.wantErr(overlapped.RecvPooled(p, s.Socket, "k", pool, &o), socknotify.ErrInvalid)
	}
	overlapped.NewBuffers(-1).Put(make([]byte, 8))
	pool := overlapped.NewBuffers(8)
	pool.Put(nil)
	pool.Put(make([]byte, 7))
	pool.Put(make([]byte, 0, 8))
	e.none(p)
	e.deliver(peer, s, "12345678")
	e.pooled(p, s, "k", pool, &o)
	if e.moved(p, "k", &o); string(o.Buffer()) != "12345678" {
		e.Fatalf("received %q", o.Buffer())
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
