package conformance

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// X7: a port seen from outside.
var snapshotCases = map[string]func(*env){
	"X7/States":          snapshotStates,
	"X7/Pages":           snapshotPages,
	"X7/Counts":          snapshotCounts,
	"X7/NotObserved":     snapshotNotObserved,
	"X7/UnderLoad":       snapshotUnderLoad,
	"X7/KeyReleased":     snapshotReleases,
	"X7/AfterClose":      snapshotAfterClose,
	"X7/Addresses":       snapshotAddresses,
	"X7/NumberUsedAgain": snapshotNumberUsedAgain,
	"X7/Trace":           traceTells,
	"X7/AddressesOfConn": snapshotConnAddresses,
	"X7/Accept":          snapshotAccept,
}

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

func snapshotStates(e *env) {
	p := e.port()
	s, peer := e.unix()
	expect := func(state debug.State, f events, t socknotify.Trigger) {
		e.Helper()
		got := e.sole(p)
		if got.Socket != s.Handle() || got.Key != "k" || got.State != state || got.Filter != f || got.Trigger != t {
			e.Fatalf("%+v; want %v, %v, %v", got, state, f, t)
		}
	}
	e.do(p, enable(s, "k", in|hangup, level|oneShot))
	expect(debug.StateEnabled, in|hangup, level|oneShot)
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	expect(debug.StateFired, in|hangup, level|oneShot)
	e.do(p, enable(s, "k", in, edge))
	expect(debug.StateEnabled, in, edge|persistent)
	e.do(p, disable(s))
	expect(debug.StateDisabled, in, edge|persistent)
	e.do(p, enable(s, "k", 0, level))
	expect(debug.StateEnabled, 0, level|persistent)
	e.do(p, remove(s))
	if got := debug.TakeSnapshot(p, 0, 10); len(got.Registrations) != 0 || got.More {
		e.Errorf("after the removal: %+v", got)
	}
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

func snapshotCounts(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot)) // before anybody observes
	stop := debug.Observe(p)
	begun := debug.TakeSnapshot(p, 0, 0)
	if begun.Observed.IsZero() {
		e.Errorf("observed, and the snapshot does not say since when")
	}
	old := e.sole(p)
	if old.ID == 0 || !old.Since.IsZero() || old.Notifications != 0 || !old.LastTime.IsZero() {
		e.Errorf("a registration from before: %+v", old)
	}
	e.deliver(peer, s, "x")
	for i := range 5 {
		e.wantNow(p, "k", in)
		got := e.sole(p)
		if got.ID != old.ID || got.Notifications != uint64(i+1) || got.Last != in || got.LastTime.Before(begun.Observed.Truncate(time.Millisecond)) {
			e.Fatalf("after %d notifications: %+v", i+1, got)
		}
		e.do(p, enable(s, "k", in, level|oneShot))
	}
	e.do(p, remove(s), enable(s, "again", out, level|oneShot))
	next := e.sole(p)
	if next.ID == old.ID || next.ID == 0 || next.Notifications != 0 || next.Since.IsZero() || !next.LastTime.IsZero() {
		e.Errorf("a new registration: %+v", next)
	}
	spread := uint64(0)
	for _, part := range debug.TakeSnapshot(p, 0, 0).Spread {
		spread += part.Notifications
	}
	if n := p.Stats().Notifications; spread != n {
		e.Errorf("%d notifications over the places, %d in all", spread, n)
	}
	second := debug.Observe(p)
	stop()
	stop()
	if e.sole(p).ID != next.ID {
		e.Errorf("the first to stop stopped it for the second")
	}
	second()
	if got := debug.TakeSnapshot(p, 0, 1); !got.Observed.IsZero() || got.Registrations[0].ID != 0 {
		e.Errorf("not observed: %+v", got)
	}
}

func snapshotNotObserved(e *env) {
	p := e.port()
	s, peer := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot))
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	got := debug.TakeSnapshot(p, 0, 1)
	r := got.Registrations[0]
	if !got.Observed.IsZero() || r.ID != 0 || r.Notifications != 0 || r.Last != 0 || !r.LastTime.IsZero() || !r.Since.IsZero() {
		e.Errorf("%+v", got)
	}
	if got.Backend != p.Backend() || got.KernelEdges != kernelEdges(p) || got.Closed || got.Time.IsZero() || got.Stats != p.Stats() {
		e.Errorf("%+v", got)
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
	for i := range 300 {
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

func snapshotReleases(e *env) {
	p := e.port()
	defer debug.Observe(p)()
	tr := debug.StartTrace(p)
	defer tr.Close()
	keys := weakKeys(5, func(i int, k *key) {
		s, peer := e.unix()
		e.do(p, enable(s, k, in, level|oneShot))
		e.deliver(peer, s, "x")
		if got := e.come(p, 1); len(got) != 1 || got[0].Key != k {
			e.Fatalf("%v", got)
		}
		if e.sole(p).Key != k {
			e.Fatalf("another key in the snapshot")
		}
		e.do(p, remove(s))
		e.wantNow(p, k, gone)
	})
	e.released("after EventRemove", keys)
	if n := tr.Read(make([]debug.TraceEntry, 100)); n != 15 {
		e.Errorf("%d entries traced; want 15", n)
	}
}

func snapshotAfterClose(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level|oneShot))
	stop := debug.Observe(p)
	r := e.sole(p)
	p.Close()
	got := debug.TakeSnapshot(p, 0, 10)
	if !got.Closed || len(got.Registrations) != 0 || got.More || !got.Observed.IsZero() {
		e.Errorf("%+v", got)
	}
	_, err := debug.Addresses(p, &r)
	e.wantErr(err, socknotify.ErrClosed)
	debug.Observe(p)()
	tr := debug.StartTrace(p)
	if n := tr.Read(make([]debug.TraceEntry, 1)); n != 0 || tr.Lost() != 0 {
		e.Errorf("a closed port traces %d entries", n)
	}
	tr.Close()
	stop()
}

func snapshotAddresses(e *env) {
	p := e.port()
	client, server := e.tcp()
	e.do(p, enable(server, "k", in, level|oneShot))
	r := e.sole(p)
	names, err := debug.Addresses(p, &r)
	if err != nil {
		e.Fatalf("%v", err)
	}
	if names.Network != "tcp" || names.Local != client.RemoteAddr().String() || names.Remote != client.LocalAddr().String() || names.Listening {
		e.Errorf("%+v", names)
	}
	e.do(p, remove(server))
	_, err = debug.Addresses(p, &r)
	e.wantErr(err, socknotify.ErrNotRegistered)
	_, err = debug.Addresses(p, &info{Socket: server.Handle()})
	e.wantErr(err, socknotify.ErrNotRegistered)
}

// A connection's addresses are had without racing its Close, after which there are none.
func snapshotConnAddresses(e *env) {
	p := e.port()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		e.Fatalf("%v", err)
	}
	defer c.Close()
	e.do(p, reg{Conn: c.(*net.UDPConn), Key: "k", Filter: in, Op: socknotify.OpEnable, Trigger: level | oneShot})
	r := e.sole(p)
	names, err := debug.Addresses(p, &r)
	if err != nil || names.Network != "udp" || names.Local != c.LocalAddr().String() {
		e.Fatalf("%+v, %v", names, err)
	}
	c.Close()
	_, err = debug.Addresses(p, &r)
	e.wantErr(err, socknotify.ErrNotRegistered, net.ErrClosed)
}

// The names of a socket that has got the number of a closed one are not those of the registration.
func snapshotNumberUsedAgain(e *env) {
	p := e.port()
	_, server := e.tcp()
	e.do(p, enable(server, "k", in, level|oneShot))
	r := e.sole(p)
	server.Close()
	_, err := debug.Addresses(p, &r)
	if err == nil {
		e.Fatalf("a closed socket has addresses")
	}
	e.wantErr(err, socknotify.ErrNotRegistered)
	for range 100 {
		other := e.fresh()
		if other.Handle() != r.Socket {
			continue
		}
		if names, err := debug.Addresses(p, &r); err == nil {
			e.Fatalf("the addresses of another socket: %+v", names)
		}
		return
	}
}

func traceTells(e *env) {
	p := e.port()
	tr := debug.StartTrace(p)
	defer tr.Close()
	s, peer := e.unix()
	number := s.Handle()
	e.do(p, enable(s, "k", in, level|oneShot))
	e.deliver(peer, s, "x")
	e.wantNow(p, "k", in)
	p.Post("k", 7)
	e.next(p)
	e.do(p, remove(s))
	e.wantNow(p, "k", gone)
	got := make([]debug.TraceEntry, 10)
	got = got[:tr.Read(got)]
	want := []debug.TraceEntry{
		{Kind: debug.TraceRegistered, Socket: number},
		{Kind: debug.TraceNotified, Socket: number, Events: in},
		{Kind: debug.TracePosted, Data: 7},
		{Kind: debug.TraceRemoved, Socket: number},
	}
	if len(got) != len(want) {
		e.Fatalf("%+v", got)
	}
	for i, g := range got {
		w := want[i]
		if g.Kind != w.Kind || g.Socket != w.Socket || g.Events != w.Events || g.Data != w.Data || g.Time.IsZero() || (g.ID != 0) != (w.Socket != 0) {
			e.Errorf("entry %d: %+v; want %+v", i, g, w)
		}
	}
	tr.Close()
	e.do(p, enable(s, "k", in, level|oneShot))
	if n := tr.Read(got); n != 0 || tr.Lost() != 0 {
		e.Errorf("%d entries after Close, %d lost", n, tr.Lost())
	}
}

func snapshotAccept(e *env) {
	p := e.port()
	defer debug.Observe(p)()
	l := e.listener()
	e.accept(p, l, "l", 4)
	if got := e.sole(p); got.State != debug.StateAccepting || got.Filter != in {
		e.Errorf("%+v", got)
	}
	e.dial(l, 2)
	for range 2 {
		e.accepted(e.next(p), "l").Close()
	}
	if got := e.sole(p); got.Notifications != 2 || got.LastTime.IsZero() {
		e.Errorf("%+v", got)
	}
	r := e.sole(p)
	if names, err := debug.Addresses(p, &r); err != nil || !names.Listening || names.Local != l.LocalAddr().String() {
		e.Errorf("%+v, %v", names, err)
	}
	e.do(p, disable(l))
	if got := e.sole(p); got.State != debug.StateStopped {
		e.Errorf("%+v", got)
	}
	l.Close()
	if _, err := debug.Addresses(p, &r); !errors.Is(err, net.ErrClosed) && !errors.Is(err, socknotify.ErrNotRegistered) {
		e.Errorf("%v", err)
	}
}
