package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
)

type opEntry = overlapped.Request[any]

// O13: operations that are started in batches.
var operationBatchCases = map[string]func(*env){
	"O13/InvalidRequests": batchInvalid,
	"O13/WholeCall":       batchWholeCall,
	"O13/CarriedOut":      batchCarriedOut,
	"O13/Timeout":         batchTimeOut,
	"O13/Context":         batchContext,
	"O13/ManySockets":     batchManySockets,
	"O13/Entries":         batchEntries,
	"O13/ManyWaiters":     batchManyWaiters,
	"O12/BatchEcho":       batchAlloc,
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

func batchInvalid(e *env) {
	p := e.port()
	s, _ := e.unix()
	var o op
	ops := []opEntry{overlapped.RecvRequest[any](nil, "k", nil, &o), overlapped.SendRequest[any](s.Socket, "k", nil, nil), {}}
	if n, err := overlapped.Process(p, ops, nil, 0); n != 0 || err != nil {
		e.Fatalf("overlapped.Process = %d, %v", n, err)
	}
	for i := range ops {
		e.wantErr(ops[i].Result, socknotify.ErrInvalid)
	}
	e.none(p)
}
