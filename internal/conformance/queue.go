package conformance

import (
	"math"
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// Q1, Q3 and Q4: posts.
var postChecks = []check{
	both("Q1", "KeyAndData", postKeyAndData),
	both("Q1", "KeepsOrder", postOrder),
	both("Q1", "KeepsOrderOfEach", postOrderOfEach),
	both("Q1", "NeverBlocks", postNeverBlocks),
	both("Q1", "WakesOne", postWakes),
	both("Q1", "LosesNone", postLosesNone),
	both("Q1", "UncomparableKey", postUncomparable),
	both("Q1", "ReleasesKeys", postReleases),
	both("Q3", "WaitReturnsEverything", waitReturnsEverything),
	both("Q4", "Posted", posted),
}

func postKeyAndData(e *env) {
	p := e.port()
	k := &key{"k"}
	for _, data := range []uintptr{0, 1, 1 << 31, ^uintptr(0)} {
		for _, postKey := range []any{k, nil, "text", 3.5} {
			if err := p.Post(postKey, data); err != nil {
				e.Fatalf("Post: %v", err)
			}
			n := e.next(p)
			if n.Key != postKey || n.Data != data || n.Events != 0 || n.Kind() != socknotify.KindPosted {
				e.Errorf("posted %v, %#x; dequeued %v, %#x, %v, %t", postKey, data, n.Key, n.Data, n.Events, n.Kind() == socknotify.KindPosted)
			}
		}
	}
}

func postOrder(e *env) {
	p := e.port()
	const posts = 1000
	for i := range uintptr(posts) {
		p.Post(nil, i)
	}
	buf := make([]note, 7)
	for want := uintptr(0); want < posts; {
		n, err := p.Process(nil, buf, limit)
		if err != nil {
			e.Fatalf("Wait: %v", err)
		}
		for _, got := range buf[:n] {
			if got.Data != want {
				e.Fatalf("post %d in the place of %d", got.Data, want)
			}
			want++
		}
	}
}

func postOrderOfEach(e *env) {
	const posters, posts = 4, 2000
	p := e.port()
	var all []<-chan error
	for g := range posters {
		all = append(all, async(func() error {
			for i := range uintptr(posts) {
				if err := p.Post(g, i); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	var next [posters]uintptr
	for range posters * posts {
		n := e.next(p)
		if g := n.Key.(int); n.Data != next[g] {
			e.Fatalf("poster %d: post %d in the place of %d", g, n.Data, next[g])
		} else {
			next[g]++
		}
	}
	for _, ch := range all {
		e.end(ch, "a poster")
	}
}

func postNeverBlocks(e *env) {
	p := e.port()
	const posts = 50000
	e.end(async(func() error {
		for i := range uintptr(posts) {
			if err := p.Post(nil, i); err != nil {
				return err
			}
		}
		return nil
	}), "posting without a waiter")
	if n := p.Stats().Queued; n != posts {
		e.Errorf("%d posts queued; want %d", n, posts)
	}
	buf := make([]note, 1000)
	for got := 0; got < posts; {
		n, err := p.Process(nil, buf, 0)
		if err != nil {
			e.Fatalf("Wait after %d: %v", got, err)
		}
		got += n
	}
}

func postWakes(e *env) {
	p := e.port()
	for range 200 {
		w := e.wait(p, 1, -1)
		e.parked(p, 1)
		p.Post("k", 0)
		if r := e.get(w); len(r.notes) != 1 {
			e.Fatalf("Wait = %v, %v", r.notes, r.err)
		}
	}
}

func postLosesNone(e *env) {
	const posters, posts = 4, 2000
	p := e.port()
	var sum, count atomic.Int64
	stop := e.workers(p, 5, 3, func(n note) {
		sum.Add(int64(n.Data))
		count.Add(1)
	})
	var all []<-chan error
	for range posters {
		all = append(all, async(func() error {
			for i := range uintptr(posts) {
				if err := p.Post(nil, i); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, ch := range all {
		e.end(ch, "a poster")
	}
	e.until("every post is dequeued", func() bool { return count.Load() == posters*posts })
	stop()
	if want := int64(posters * posts * (posts - 1) / 2); sum.Load() != want {
		e.Errorf("sum %d; want %d", sum.Load(), want)
	}
}

// postUncomparable posts a key that need not be compared.
func postUncomparable(e *env) {
	p := e.port()
	if err := p.Post([]int{1, 2}, 0); err != nil {
		e.Fatalf("Post: %v", err)
	}
	if n := e.next(p); len(n.Key.([]int)) != 2 {
		e.Errorf("key %v", n.Key)
	}
}

func postReleases(e *env) {
	p := e.port()
	keys := weakKeys(5, func(_ int, k *key) { p.Post(k, 0) })
	e.kept(keys)
	for range keys {
		e.next(p)
	}
	e.released("the key of a dequeued post", keys)
	p.Post(nil, 0)
	e.next(p)
}

func waitReturnsEverything(e *env) {
	p := e.port()
	s, peer := e.unix()
	r, _ := e.unix()
	e.deliver(peer, s, "x")
	e.do(p, enable(s, "socket", in, level), enable(r, "removed", in, level), remove(r))
	p.Post("post", 1)
	want := map[any]events{"socket": in, "removed": gone, "post": 0}
	got := e.come(p, len(want))
	if len(got) != len(want) {
		e.Fatalf("notifications %v", got)
	}
	for _, n := range got {
		if ev, ok := want[n.Key]; !ok || n.Events != ev {
			e.Errorf("%v: %v; want %v", n.Key, n.Events, ev)
		}
		delete(want, n.Key)
	}
}

func posted(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", out, level|oneShot))
	p.Post("k", 0)
	e.now2(p, 2, func(n note) {
		if (n.Kind() == socknotify.KindPosted) != (n.Events == 0) {
			e.Errorf("%v: posted %t", n.Events, n.Kind() == socknotify.KindPosted)
		}
	})
	e.do(p, remove(s))
	if k := e.next(p).Kind(); k != socknotify.KindRemoved {
		e.Errorf("EventRemove is of kind %v", k)
	}
	if k := (note{}).Kind(); k != socknotify.KindSocket {
		e.Errorf("the zero Notification is of kind %v", k)
	}
}

// now2 is now for a known number of notifications.
func (e *env) now2(p *port, count int, look func(note)) {
	e.Helper()
	got := e.come(p, count)
	if len(got) != count {
		e.Fatalf("%d notifications %v; want %d", len(got), got, count)
	}
	for _, n := range got {
		look(n)
	}
}

// Q2: neither load starves the other.
var balanceChecks = []check{
	both("Q2", "PostAmongReadySockets", postAmongSockets),
	both("Q2", "SocketAmongPosts", socketAmongPosts),
	both("Q2", "RemovalAmongReadySockets", removalAmongSockets),
}

func postAmongSockets(e *env) {
	for _, room := range []int{1, 2, 5} {
		p := e.port()
		for i := range 20 {
			s, _ := e.unix()
			e.do(p, enable(s, i, out, level))
		}
		p.Post("post", 0)
		e.within(p, room, 1000, func(n note) bool { return n.Kind() == socknotify.KindPosted })
	}
}

// within dequeues until a notification is the one, which must be among so many.
func (e *env) within(p *port, room, most int, the func(note) bool) {
	e.Helper()
	buf := make([]note, room)
	for seen := 0; seen < most; {
		n, err := p.Process(nil, buf, limit)
		if err != nil {
			e.Fatalf("Wait: %v", err)
		}
		for _, got := range buf[:n] {
			if the(got) {
				return
			}
		}
		seen += n
	}
	e.Fatalf("with %d entries: not among %d notifications", room, most)
}

func socketAmongPosts(e *env) {
	for _, room := range []int{1, 2, 5} {
		p := e.port()
		s, peer := e.unix()
		e.deliver(peer, s, "x")
		for range 2000 {
			p.Post("post", 0)
		}
		e.do(p, enable(s, "socket", in, level|oneShot))
		e.within(p, room, 1000, func(n note) bool { return n.Key == "socket" })
		// The same with posts that never end.
		var end atomic.Bool
		poster := async(func() error {
			for !end.Load() {
				if p.Stats().Queued < 1000 {
					p.Post("post", 0)
				}
			}
			return nil
		})
		for range 20 {
			e.do(p, enable(s, "socket", in, level|oneShot))
			e.within(p, room, 1000, func(n note) bool { return n.Key == "socket" })
		}
		end.Store(true)
		e.end(poster, "the poster")
	}
}

func removalAmongSockets(e *env) {
	p := e.port()
	for i := range 20 {
		s, _ := e.unix()
		e.do(p, enable(s, i, out, level))
	}
	s, _ := e.unix()
	e.do(p, enable(s, "removed", in, level), remove(s))
	e.within(p, 1, 1000, func(n note) bool { return n.Events == gone })
}

// Q5: Deregister.
var deregisterChecks = []check{
	both("Q5", "ReturnsTheKey", deregisterReturnsKey),
	both("Q5", "DropsNothingElse", deregisterDropsNothing),
	both("Q5", "AmongWaiters", deregisterAmongWaiters),
	both("Q5", "ManyAtOnce", deregisterMany),
	both("Q5", "Errors", deregisterErrors),
	both("Q5", "ReadsTheSocketAlone", deregisterReadsTheSocket),
}

func deregisterReturnsKey(e *env) {
	p := e.port()
	s, peer := e.unix()
	k := &key{"k"}
	e.deliver(peer, s, "x")
	for range 3 {
		e.do(p, enable(s, k, in, level))
		e.deregister(p, s, k)
		if got := e.now(p); len(got) != 0 {
			e.Errorf("dequeued %v as well", got)
		}
	}
	s.Close() // it may be closed at once
}

func deregisterDropsNothing(e *env) {
	p := e.port()
	s, peer := e.unix()
	other, otherPeer := e.unix()
	third, _ := e.unix()
	e.deliver(peer, s, "x")
	e.deliver(otherPeer, other, "x")
	e.do(p, enable(s, "s", in, level), enable(other, "other", in, level|oneShot), enable(third, "third", in, level), remove(third))
	p.Post("post", 5)
	e.deregister(p, s, "s")
	want := map[any]events{"other": in, "third": gone, "post": 0}
	e.now2(p, 3, func(n note) {
		if ev, ok := want[n.Key]; !ok || ev != n.Events {
			e.Errorf("%v: %v", n.Key, n.Events)
		}
		delete(want, n.Key)
	})
}

// deregisterAmongWaiters removes while others are being served; they see no EventRemove.
func deregisterAmongWaiters(e *env) {
	p := e.port()
	var removals, heard atomic.Int32
	stop := e.workers(p, 3, 2, func(n note) {
		if n.Events == gone {
			removals.Add(1)
		}
		if n.Key == "other" {
			heard.Add(1)
		}
	})
	s, peer := e.unix()
	e.send(peer, "x")
	other, otherPeer := e.unix()
	for i := range int32(100) {
		e.do(p, enable(s, "s", in, level|oneShot), enable(other, "other", in, level|oneShot))
		e.send(otherPeer, "x")
		e.deregister(p, s, "s")
		e.until("the other socket is served", func() bool { return heard.Load() == i+1 })
	}
	stop()
	if n := removals.Load(); n != 0 {
		e.Errorf("%d EventRemoves went to other waiters", n)
	}
}

func deregisterMany(e *env) {
	const sockets = 64
	p := e.port()
	var all []<-chan error
	for i := range sockets {
		s, _ := e.unix()
		e.do(p, enable(s, i, in, level))
		all = append(all, async(func() error {
			k, err := p.Deregister(remove(s))
			if err == nil && k != i {
				e.Errorf("socket %d: got key %v", i, k)
			}
			return err
		}))
	}
	for _, ch := range all {
		e.end(ch, "Deregister")
	}
	e.none(p)
}

func deregisterErrors(e *env) {
	p := e.port()
	s, _ := e.unix()
	_, err := p.Deregister(remove(s))
	e.wantErr(err, socknotify.ErrNotRegistered)
	_, err = p.Deregister(reg{Handle: 1 << 20})
	e.wantErr(err, socknotify.ErrBadSocket, errNotOpen)
	_, err = p.Deregister(reg{})
	e.wantErr(err, socknotify.ErrInvalid)
	e.do(p, enable(s, "k", in, level), remove(s))
	_, err = p.Deregister(remove(s))
	e.wantErr(err, socknotify.ErrNotRegistered)
	e.wantNow(p, "k", gone)
	e.none(p)
}

// deregisterReadsTheSocket gives Deregister a registration whose other fields make no sense.
func deregisterReadsTheSocket(e *env) {
	p := e.port()
	s, _ := e.unix()
	e.do(p, enable(s, "k", in, level))
	r := remove(s)
	r.Op, r.Key, r.Filter, r.Trigger, r.Drained = 0x55, []int{}, math.MaxUint32, math.MaxUint8, true
	if k, err := p.Deregister(r); k != "k" || err != nil {
		e.Errorf("Deregister = %v, %v", k, err)
	}
	e.none(p)
}
