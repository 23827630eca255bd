package park

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
)

// suspending returns a handler whose requests wait, and are then answered by h.
func suspending(h http.Handler, o SuspendOptions, wait func(*Suspended)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		then := func(w http.ResponseWriter, r *http.Request, _ *Suspended) { h.ServeHTTP(w, r) }
		if err := SuspendWith(w, r, o, wait, then); err != nil { // its body cannot be read
			http.Error(w, errors.Unwrap(err).Error(), http.StatusBadRequest)
		}
	})
}

// Requests that wait get the same bytes as from a handler of net/http, and their connections have
// the same states.
func TestSuspendExchanges(t *testing.T) {
	t.Parallel() // it waits
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "http", true: "https"}[secure], func(t *testing.T) {
			t.Parallel() // net/http waits before it closes
			backendtest.Need(t)
			serve := func(h http.Handler) func(*http.Server) { return func(s *http.Server) { s.Handler = h } }
			corpus := httpcorpus.Handler()
			stock := newExchangeServer(t, secure, false, "", 0, serve(httpcorpus.ReadingFirst(corpus)))
			rigs := map[string]*exchangeServer{
				"in register": newExchangeServer(t, secure, true, "", -1,
					serve(suspending(corpus, SuspendOptions{}, func(q *Suspended) { q.Resume() }))),
				"concurrently": newExchangeServer(t, secure, true, "", 0,
					serve(suspending(corpus, SuspendOptions{}, func(q *Suspended) { go q.Resume() }))),
				"on net/http": newExchangeServer(t, secure, false, "", 0,
					serve(suspending(corpus, SuspendOptions{}, func(q *Suspended) { go q.Resume() }))),
			}
			parked := make(chan *Suspended, 100)
			waits := newExchangeServer(t, secure, true, "", -1,
				serve(suspending(corpus, SuspendOptions{HalfClose: true}, func(q *Suspended) { parked <- q })))
			rigs["when parked"] = waits
			done := make(chan struct{})
			t.Cleanup(func() { close(done) })
			go func() {
				for {
					select {
					case q := <-parked:
						await.Until(t, "parked", func() bool { return q.decided() || waits.parked() == 1 })
						q.Resume()
					case <-done:
						return
					}
				}
			}()
			for _, e := range exchanges() {
				t.Run(e.name, func(t *testing.T) {
					want, wantStates := stock.run(t, e.steps)
					for name, r := range rigs {
						got, states := r.run(t, e.steps)
						if got != want {
							t.Errorf("%s: %s", name, httpcorpus.Diff(got, want))
						}
						if !slices.Equal(states, wantStates) {
							t.Errorf("%s: %v, want %v", name, states, wantStates)
						}
					}
				})
			}
		})
	}
}
