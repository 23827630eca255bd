package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify/debug"
)

type info = debug.RegistrationInfo[any]

// sole is the only registration of a port.
func (e *env) sole(p *port) info {
	all := debug.TakeSnapshot(p, 0, 10).Registrations
	if len(all) != 1 {
		e.Fatalf("%d registrations in the snapshot; want 1", len(all))
	}
	return all[0]
}

// pages checks that pages of so many registrations, from a socket's number on, have those of these
// sockets, each once, in the order of the numbers.
func (r *run) pages(a []string) {
	p, limit, from, sockets := r.p(), r.number(a[0]), uintptr(r.number(a[1])), a[2:]
	names := make(map[uintptr]any)
	for _, name := range sockets {
		names[r.handle(name).Handle()] = name
	}
	for more, last, pages := true, uintptr(0), 0; more; pages++ {
		got := debug.TakeSnapshot(p, from, limit)
		if len(got.Registrations) > max(limit, 0) || pages > len(sockets) {
			r.Fatalf("%d registrations in page %d", len(got.Registrations), pages)
		}
		for _, x := range got.Registrations {
			if x.Key == nil || names[x.Socket] != x.Key || x.Socket < last {
				r.Fatalf("socket %d, key %v after %d", x.Socket, x.Key, last)
			}
			delete(names, x.Socket)
			last = x.Socket
		}
		from, more = got.Next, got.More
	}
	if len(names) != 0 {
		r.Errorf("%d registrations in no page", len(names))
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
