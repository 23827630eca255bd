package conformance

import (
	"sync/atomic"

	"github.com/socknotify/socknotify"
)

// X6: the counts.
var statsCases = map[string]func(*env){
	"X6/AddsUpUnderLoad": addsUp,
	"X6/WhileItRuns":     whileItRuns,
}

func addsUp(e *env) {
	p := e.port()
	var notes, removals, posts atomic.Uint64
	stop := e.workers(p, 4, 3, func(n note) {
		switch {
		case n.Kind() == socknotify.KindPosted:
			posts.Add(1)
		case n.Events == gone:
			removals.Add(1)
		default:
			notes.Add(1)
		}
	})
	for i := range 300 {
		s, peer := e.unix()
		e.do(p, enable(s, i, in|out, level|oneShot))
		e.send(peer, "x")
		p.Post(nil, 0)
		e.do(p, remove(s))
		s.Close()
		peer.Close()
	}
	e.until("everything is dequeued", func() bool { return posts.Load() == 300 && removals.Load() == 300 })
	stop()
	st := p.Stats()
	if st.Notifications != notes.Load() || st.Removals != 300 || st.Posts != 300 || st.PostsDequeued != 300 ||
		st.Registrations != 0 || st.Queued != 0 || st.Waiting != 0 {
		e.Errorf("%+v with %d notifications", st, notes.Load())
	}
}

func whileItRuns(e *env) {
	p := e.port()
	stop := e.workers(p, 2, 2, func(note) {})
	var end atomic.Bool
	reader := async(func() error {
		var last socknotify.Stats
		for !end.Load() {
			now := p.Stats()
			if now.Posts < last.Posts || now.Notifications < last.Notifications || now.Wakeups < last.Wakeups {
				e.Errorf("a count went back: %+v, then %+v", last, now)
			}
			last = now
		}
		return nil
	})
	s, _ := e.unix()
	for range 500 {
		e.do(p, enable(s, "k", out, level|oneShot))
		p.Post("k", 0)
	}
	end.Store(true)
	e.end(reader, "the reader of counts")
	stop()
}
