package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/debug"
)

type info = debug.RegistrationInfo[any]

// What a snapshot says of a registration is of one registration: key and filter belong together.
func snapshotUnderLoad(e *env) {
	p := e.port()
	defer debug.Observe(p)()
	stop := e.workers(p, 2, 3, func(note) {})
	var end atomic.Bool
	var seen atomic.Int64
	reader := async(func() error {
		for !end.Load() {
			from := uintptr(0)
			for more := true; more; {
				got := debug.TakeSnapshot(p, from, 3)
				for _, r := range got.Registrations {
					seen.Add(1)
					if r.Key != r.Filter {
						e.Errorf("key %v with filter %v", r.Key, r.Filter)
					}
				}
				from, more = got.Next, got.More
			}
		}
		return nil
	})
	var sockets []*socket
	for range 8 {
		s, _ := e.unix()
		sockets = append(sockets, s)
	}
	filters := []events{in, out, in | out, hangup}
	for i := range e.rounds(300) {
		f := filters[i%len(filters)]
		for _, s := range sockets {
			e.do(p, enable(s, f, f, level|oneShot))
		}
		for _, s := range sockets {
			e.do(p, remove(s))
		}
	}
	e.do(p, enable(sockets[0], in, in, level|oneShot))
	before := seen.Load()
	e.until("the reader has seen one", func() bool { return seen.Load() > before })
	end.Store(true)
	e.end(reader, "the reader of snapshots")
	stop()
}
