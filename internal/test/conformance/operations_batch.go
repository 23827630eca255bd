package conformance

import (
	"github.com/socknotify/socknotify/overlapped"
)

type opEntry = overlapped.Request[any]

// O13: operations that are started in batches.
var operationBatchCases = map[string]func(*env){
	"O13/ManyWaiters": batchManyWaiters,
	"O12/BatchEcho":   batchAlloc,
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
