package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

type opEntry = overlapped.Request[any]

// O13: operations that are started in batches.
var operationBatchChecks = []check{
	ofSocks("O13", "Order", batchOrder),
	ofSocks("O13", "Results", batchResults),
	ofSocks("O13", "WholeCall", batchWholeCall),
	ofSocks("O13", "CarriedOut", batchCarriedOut),
	ofSocks("O13", "TimeOut", batchTimeOut),
	ofSocks("O13", "Context", batchContext),
	ofSocks("O13", "ManySockets", batchManySockets),
	ofSocks("O13", "SocketsByTurns", batchByTurns),
	ofSocks("O13", "Entries", batchEntries),
	ofSocks("O13", "Connect", batchConnect),
	ofSocks("O13", "Datagrams", batchDatagrams),
	ofSocks("O13", "ManyWaiters", batchManyWaiters),
	ofSocks("O12", "BatchEcho", batchAlloc),
}

// started starts operations, all of which must be.
func (e *env) started(p *port, ops ...opEntry) {
	e.Helper()
	if n, err := overlapped.Process(p, ops, nil, 0); n != 0 || err != nil {
		e.Fatalf("ProcessOperations without entries = %d, %v; want 0, nil", n, err)
	}
	for i := range ops {
		if ops[i].Result != nil {
			e.Fatalf("Result of entry %d: %v", i, ops[i].Result)
		}
	}
}

// arrives waits until a peer has received so much, and nothing else.
func (e *env) arrives(peer *socket, want string) {
	e.Helper()
	got := ""
	e.until("it arrives", func() bool { got += e.drain(peer); return len(got) >= len(want) })
	if got != want {
		e.Fatalf("the peer has received %q; want %q", got, want)
	}
}

func batchOrder(e *env) {
	p := e.port()
	for _, pair := range []func() (*socket, *socket){e.unix, e.tcp} {
		s, peer := pair()
		var recvs, sends [3]op
		b := make([]byte, 3)
		var ops []opEntry
		for i := range 3 {
			ops = append(ops, overlapped.RecvRequest[any](s.Socket, "r", b[i:i+1], &recvs[i]),
				overlapped.SendRequest[any](s.Socket, "s", []byte{byte('x' + i)}, &sends[i]))
		}
		e.started(p, ops...)
		for i := range 3 {
			if n := e.moved(p, "s", &sends[i]); n != 1 {
				e.Fatalf("sent %d", n)
			}
		}
		e.arrives(peer, "xyz")
		e.none(p)
		e.deliver(peer, s, "abc")
		for i := range 3 {
			e.received(p, "r", &recvs[i], b[i:], string(rune('a'+i)))
		}
	}
}

func batchResults(e *env) {
	p, q := e.port(), e.port()
	s, peer := e.tcp()
	other, otherPeer := e.tcp()
	foreign, _ := e.tcp()
	registered, _ := e.tcp()
	closed, _ := e.unix()
	closed.Close()
	var good, busy, onOther, last, x op
	b := make([]byte, 8)
	e.recv(p, other, "busy", b[:4], &busy)
	e.recv(q, foreign, "foreign", b[:4], &onOther)
	e.do(p, enable(registered, "n", in, level|oneShot))
	ops := []opEntry{
		overlapped.RecvRequest[any](s.Socket, "good", b[4:], &good),
		overlapped.RecvRequest[any](nil, "k", b, &x),
		overlapped.SendRequest[any](s.Socket, "k", b, nil),
		overlapped.SendRequest[any](s.Socket, "k", b, &busy),
		overlapped.RecvRequest[any](closed.Socket, "k", b, &x),
		overlapped.SendRequest[any](foreign.Socket, "k", b, &x),
		overlapped.SendRequest[any](registered.Socket, "k", b, &x),
		overlapped.SendRequest[any](s.Socket, "k", b, &good),
		{},
		overlapped.SendRequest[any](s.Socket, "last", []byte("z"), &last),
	}
	want := []error{nil, socknotify.ErrInvalid, socknotify.ErrInvalid, socknotify.ErrInvalid, net.ErrClosed,
		socknotify.ErrOtherPort, socknotify.ErrInvalid, socknotify.ErrInvalid, socknotify.ErrInvalid, nil}
	for i := range ops {
		ops[i].Result = errors.New("from before")
	}
	if n, err := overlapped.Process(p, ops, nil, 0); n != 0 || err != nil {
		e.Fatalf("ProcessOperations = %d, %v", n, err)
	}
	for i := range ops {
		if err := ops[i].Result; !errors.Is(err, want[i]) || (err == nil) != (want[i] == nil) {
			e.Errorf("Result of entry %d: %v; want %v", i, err, want[i])
		}
	}
	e.moved(p, "last", &last)
	e.arrives(peer, "z")
	e.none(p)
	e.deliver(peer, s, "one")
	e.received(p, "good", &good, b[4:], "one")
	e.deliver(otherPeer, other, "two")
	e.received(p, "busy", &busy, b[:4], "two")
	e.none(q)
}

func batchWholeCall(e *env) {
	p := e.port()
	s, peer := e.unix()
	var o op
	mine := errors.New("mine")
	ops := []opEntry{overlapped.SendRequest[any](s.Socket, "k", []byte("x"), &o)}
	ops[0].Result = mine
	_, err := overlapped.Process(p, ops, nil, time.Second)
	e.wantErr(err, socknotify.ErrInvalid)
	var noContext context.Context
	_, err = overlapped.ProcessContext(noContext, p, ops, make([]note, 1))
	e.wantErr(err, socknotify.ErrInvalid)
	q := e.port()
	q.Close()
	for _, entries := range [][]note{nil, make([]note, 1)} {
		_, err = overlapped.Process(q, ops, entries, 0)
		e.wantErr(err, socknotify.ErrClosed)
		_, err = overlapped.ProcessContext(context.Background(), q, ops, entries)
		e.wantErr(err, socknotify.ErrClosed)
	}
	if ops[0].Result != mine {
		e.Errorf("Result %v of a call that failed as a whole", ops[0].Result)
	}
	e.none(p)
	if got := e.drain(peer); got != "" {
		e.Errorf("%q was sent", got)
	}
	if n, err := overlapped.Process(p, nil, nil, 0); n != 0 || err != nil {
		e.Errorf("nothing at all = %d, %v", n, err)
	}
}

func batchCarriedOut(e *env) {
	p := e.port()
	var conns [20][2]*socket
	var recvs, sends [20]op
	b := make([]byte, 20)
	var ops []opEntry
	for i := range conns {
		conns[i][0], conns[i][1] = e.tcp()
		e.deliver(conns[i][1], conns[i][0], "in")
		ops = append(ops, overlapped.RecvRequest[any](conns[i][0].Socket, "r", b[i:i+1], &recvs[i]),
			overlapped.SendRequest[any](conns[i][0].Socket, "s", []byte("out"), &sends[i]))
	}
	e.started(p, ops...)
	for i := range conns { // although nothing was dequeued
		e.arrives(conns[i][1], "out")
	}
	seen := map[*op]bool{}
	for len(seen) < 2*len(conns) {
		got := e.next(p)
		if n, err := overlapped.Of(&got).Result(); err != nil || got.Key == "r" && n != 1 || got.Key == "s" && n != 3 {
			e.Fatalf("%v has moved %d, %v", got.Key, n, err)
		}
		seen[overlapped.Of(&got)] = true
	}
	e.none(p)
}

// batchManySockets has more of them than any one system call takes.
func batchManySockets(e *env) {
	p := e.port()
	const many = 300
	var conns [many][2]*socket
	ops := make([]op, 2*many)
	bufs := make([][1]byte, many)
	var list []opEntry
	for i := range conns {
		conns[i][0], conns[i][1] = e.unix()
		list = append(list, overlapped.RecvRequest[any](conns[i][0].Socket, i, bufs[i][:], &ops[2*i]))
	}
	e.started(p, list...)
	e.none(p)
	list = list[:0]
	for i := range conns {
		e.send(conns[i][1], string(rune('a'+i%26)))
		list = append(list, overlapped.SendRequest[any](conns[i][0].Socket, i, []byte("x"), &ops[2*i+1]))
	}
	out := make([]note, many)
	seen := map[*op]bool{}
	n, err := overlapped.Process(p, list, out, limit)
	for ; len(seen) < 2*many; n, err = p.Process(nil, out, limit) {
		if err != nil {
			e.Fatalf("%d of %d, %v", len(seen), 2*many, err)
		}
		for _, got := range out[:n] {
			o := overlapped.Of(&got)
			if k, err := o.Result(); k != 1 || err != nil || seen[o] {
				e.Fatalf("%v: %d, %v, seen before: %t", got.Key, k, err, seen[o])
			}
			if seen[o] = true; len(seen) == 2*many {
				break
			}
		}
		if len(seen) == 2*many {
			break
		}
	}
	for i := range conns {
		if e.arrives(conns[i][1], "x"); bufs[i][0] != byte('a'+i%26) {
			e.Fatalf("socket %d has received %q", i, bufs[i])
		}
	}
	e.none(p)
}

// batchByTurns names sockets more than once, and others in between.
func batchByTurns(e *env) {
	p := e.port()
	var conns [6][2]*socket
	var ops [24]op
	var list []opEntry
	for i := range conns {
		conns[i][0], conns[i][1] = e.tcp()
	}
	for i := range ops {
		list = append(list, overlapped.SendRequest[any](conns[i%len(conns)][0].Socket, i, fmt.Appendf(nil, "%02d", i), &ops[i]))
	}
	e.started(p, list...)
	for i := range ops {
		e.moved(p, i, &ops[i])
	}
	for i := range conns {
		e.arrives(conns[i][1], fmt.Sprintf("%02d%02d%02d%02d", i, i+6, i+12, i+18))
	}
}

func batchConnect(e *env) {
	p := e.port()
	l := e.listener()
	c := e.fresh()
	var connect, send, recv op
	b := make([]byte, 4)
	e.started(p,
		overlapped.ConnectRequest[any](c.Socket, "c", l.LocalAddr(), &connect),
		overlapped.SendRequest[any](c.Socket, "s", []byte("x"), &send),
		overlapped.RecvRequest[any](c.Socket, "r", b, &recv))
	if _, err := e.result(e.next(p), "c", &connect); err != nil {
		e.Fatalf("connect: %v", err)
	}
	e.moved(p, "s", &send)
	var peer *socket
	e.until("the connection is accepted", func() bool {
		got, err := l.Accept()
		if err == nil {
			peer = e.keep(got, nil)
		}
		return err == nil
	})
	e.deliver(peer, c, "y")
	e.received(p, "r", &recv, b, "y")
}

func batchDatagrams(e *env) {
	p := e.port()
	s, peer := e.keep(sock.New(sock.UDP4)), e.keep(sock.New(sock.UDP4))
	for _, s := range []*socket{s, peer} {
		if err := s.Bind(sock.Loopback); err != nil {
			e.Fatalf("bind: %v", err)
		}
	}
	var recv, send op
	b := make([]byte, 16)
	e.started(p,
		overlapped.RecvFromRequest[any](s.Socket, "r", b, &recv),
		overlapped.SendToRequest[any](peer.Socket, "s", []byte("hello"), s.LocalAddr(), &send))
	for range 2 {
		got := e.next(p)
		if n, err := overlapped.Of(&got).Result(); n != 5 || err != nil {
			e.Fatalf("%v: %d, %v", got.Key, n, err)
		}
	}
	if string(b[:5]) != "hello" {
		e.Errorf("received %q", b)
	}
	if recv.Addr() != peer.LocalAddr() {
		e.Errorf("received from %v; want %v", recv.Addr(), peer.LocalAddr())
	}
}
