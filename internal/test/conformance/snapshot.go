package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/debug"
)

type info = debug.RegistrationInfo[any]

// sole is the only registration of a port.
func (e *env) sole(p *port) info {
	e.Helper()
	all := debug.TakeSnapshot(p, 0, 10).Registrations
	if len(all) != 1 {
		e.Fatalf("%d registrations in the snapshot; want 1", len(all))
	}
	return all[0]
}

func snapshotPages(e *env) {
	const sockets, limit = 40, 7
	p := e.port()
	want := map[uintptr]bool{}
	for range sockets {
		s, _ := e.unix()
		e.do(p, enable(s, s.Handle(), in, level|oneShot))
		want[s.Handle()] = true
	}
	from, last := uintptr(0), uintptr(0)
	for pages := 1; ; pages++ {
		got := debug.TakeSnapshot(p, from, limit)
		if len(got.Registrations) > limit {
			e.Fatalf("%d registrations; limit %d", len(got.Registrations), limit)
		}
		for _, r := range got.Registrations {
			if !want[r.Socket] || r.Key != r.Socket || r.Socket < last {
				e.Fatalf("socket %d, key %v after %d", r.Socket, r.Key, last)
			}
			delete(want, r.Socket)
			last = r.Socket
		}
		if from = got.Next; !got.More {
			break
		}
		if pages > sockets {
			e.Fatalf("more pages than sockets")
		}
	}
	if len(want) != 0 {
		e.Errorf("%d registrations in no page", len(want))
	}
	for _, limit := range []int{0, -1} {
		if got := debug.TakeSnapshot(p, 0, limit); len(got.Registrations) != 0 || got.More {
			e.Errorf("limit %d: %d registrations", limit, len(got.Registrations))
		}
	}
	if got := debug.TakeSnapshot(p, ^uintptr(0), 5); len(got.Registrations) != 0 || got.More {
		e.Errorf("beyond the last: %+v", got)
	}
}

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
