package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// suspending returns a server whose handler suspends each request with options, and calls register.
func suspending(o park.SuspendOptions, register func(q *park.Suspended, r *http.Request),
	then func(http.ResponseWriter, *http.Request)) *park.HTTPServer {
	return parked(handler(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Kept", "yes")
		var own *park.Suspended
		err := park.SuspendWith(w, r, o, func(q *park.Suspended) { own = q; register(q, r) },
			func(w http.ResponseWriter, r *http.Request, q *park.Suspended) {
				if q != own {
					panic("then got another Suspended than register")
				}
				then(w, r)
			})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
}

// Many requests wait on one connection without a goroutine, and get their answers with the header
// and the body that their handlers had.
func TestSuspendMany(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		const streams = 200
		waits := make(chan *park.Suspended, streams)
		s := suspending(park.SuspendOptions{}, func(q *park.Suspended, _ *http.Request) { waits <- q },
			func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s %v %s", r.URL, b, err, w.Header().Get("Kept"))
			})
		url, _ := start(t, s, s.Server, secure)
		p := dial(t, url)
		before := runtime.NumGoroutine()
		for i := range streams {
			p.open(id(i), fmt.Sprint("/", i), false)
			p.WriteData(id(i), true, []byte("body"))
		}
		must(t, p.send())
		until(t, "all wait", func() bool { return s.Stats().Suspended == streams })
		until(t, "none needs a goroutine", func() bool { return runtime.NumGoroutine() < before+10 })
		if n := s.Stats().Blocked; n != 0 {
			t.Errorf("%d wait with their goroutines", n)
		}
		for range streams {
			(<-waits).Resume()
		}
		got := make(map[uint32]string)
		for ended := 0; ended < streams; {
			f, err := p.ReadFrame()
			must(t, err)
			if d, ok := f.(*http2.DataFrame); ok {
				got[d.StreamID] += string(d.Data())
				if d.StreamEnded() {
					ended++
				}
			}
		}
		for i := range streams {
			if want := fmt.Sprintf("/%d body <nil> yes", i); got[id(i)] != want {
				t.Errorf("got %q, want %q", got[id(i)], want)
			}
		}
	})
}

// A wait ends by its timeout, by Resume inside register, by Close, and not at all if the handler
// panics. A second Suspend fails.
func TestSuspendEnds(t *testing.T) {
	causes := make(chan error, 10)
	then := func(w http.ResponseWriter, r *http.Request) {
		causes <- context.Cause(r.Context())
		io.WriteString(w, "answer")
	}
	want := func(want error) {
		t.Helper()
		if got := await.Receive(t, "then", causes); got != want {
			t.Errorf("the cause is %v, want %v", got, want)
		}
	}
	ended := func(s *park.HTTPServer) {
		t.Helper()
		until(t, "none waits", func() bool { return s.Stats().Suspended == 0 })
	}
	s := suspending(park.SuspendOptions{Timeout: time.Millisecond}, func(*park.Suspended, *http.Request) {}, then)
	url, _ := start(t, s, s.Server, false)
	get(t, client(t), url)
	want(park.ErrWaitTimeout)
	ended(s)

	s = suspending(park.SuspendOptions{}, func(q *park.Suspended, _ *http.Request) { q.Resume() }, then)
	url, _ = start(t, s, s.Server, false)
	get(t, client(t), url)
	want(nil)
	ended(s)

	s = suspending(park.SuspendOptions{}, func(*park.Suspended, *http.Request) { panic(http.ErrAbortHandler) }, then)
	url, _ = start(t, s, s.Server, false)
	p := dial(t, url)
	p.request(1, true)
	must(t, p.send())
	p.want("1 reset INTERNAL_ERROR")
	ended(s)

	second := make(chan error, 1)
	s = parked(handler(func(w http.ResponseWriter, r *http.Request) {
		first := func(q *park.Suspended) { q.Resume() }
		then := func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) { then(w, r) }
		must(t, park.Suspend(w, r, first, then))
		second <- park.Suspend(w, r, first, then)
	}))
	url, _ = start(t, s, s.Server, false)
	get(t, client(t), url)
	want(nil)
	if err := <-second; !errors.Is(err, http.ErrHijacked) {
		t.Error(err)
	}

	s = suspending(park.SuspendOptions{}, func(*park.Suspended, *http.Request) {}, then)
	url, _ = start(t, s, s.Server, false)
	p = dial(t, url)
	p.request(1, true)
	must(t, p.send())
	until(t, "it waits", func() bool { return s.Stats().Suspended == 1 })
	must(t, s.Close())
	want(http.ErrServerClosed)
	ended(s)
	if len(causes) > 0 {
		t.Error("then was called twice")
	}
}

// Requests are resumed, reset, time out and lose their connections at random. then is called exactly
// once for each.
func TestSuspendStreamStress(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		var registered, called atomic.Int64
		var resuming sync.WaitGroup
		s := suspending(park.SuspendOptions{Timeout: 150 * time.Millisecond},
			func(q *park.Suspended, r *http.Request) {
				registered.Add(1)
				if rand.IntN(4) > 0 {
					resuming.Go(func() {
						await.UpTo(2 * time.Millisecond)
						q.Resume()
						q.Resume()
					})
				}
			}, func(w http.ResponseWriter, r *http.Request) {
				called.Add(1)
				fmt.Fprint(w, "answer")
			})
		url, _ := start(t, s, s.Server, secure)
		end := time.Now().Add(time.Second)
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for time.Now().Before(end) {
					p := dial(t, url)
					go p.drain()
					for i := range rand.IntN(50) {
						p.request(id(i), true)
						if rand.IntN(3) == 0 {
							p.WriteRSTStream(id(rand.IntN(i+1)), http2.ErrCodeCancel)
						}
						if p.send() != nil {
							break
						}
						await.UpTo(time.Millisecond)
					}
					p.conn.Close()
				}
			})
		}
		clients.Wait()
		until(t, "none waits", func() bool { return s.Stats().Suspended == 0 })
		resuming.Wait()
		until(t, "then was called for each", func() bool { return called.Load() >= registered.Load() })
		if c, r := called.Load(), registered.Load(); c != r || r == 0 {
			t.Errorf("called %d times for %d requests", c, r)
		}
	})
}
