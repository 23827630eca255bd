package conformance

import (
	"sync/atomic"
)

// Q1, Q3 and Q4: posts.
var postCases = map[string]func(*env){
	"Q4/Zero":             func(e *env) { e.check(note{}, nil, 0) },
	"Q1/KeepsOrderOfEach": postOrderOfEach,
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

// Q2: neither load starves the other.
var balanceCases = map[string]func(*env){
	"Q2/SocketAmongPosts": socketAmongPosts,
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

// Q5: Deregister.
var deregisterCases = map[string]func(*env){}
