package http2

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/socknotify/socknotify/park"
)

// A request that waits over HTTP/2 needs no goroutine. Resume, its client's end and Shutdown end the
// wait.
func TestSuspend(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		waits, causes := make(chan *park.Suspended, 1), make(chan error, 1)
		s := parked(handler(func(w http.ResponseWriter, r *http.Request) {
			err := park.Suspend(w, r, func(q *park.Suspended) { waits <- q },
				func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) {
					causes <- context.Cause(r.Context())
					io.WriteString(w, "answer of "+r.Proto)
				})
			if err != nil {
				t.Error(err)
			}
		}))
		url, _ := start(t, s, s.Server, secure)
		c := client(t)
		answers := make(chan string, 1)
		ask := func(ctx context.Context) *park.Suspended {
			go func() {
				r, _ := http.NewRequestWithContext(ctx, "GET", url, nil)
				res, err := c.Do(r)
				if err != nil {
					answers <- "none"
					return
				}
				text, _ := io.ReadAll(res.Body)
				res.Body.Close()
				answers <- string(text)
			}()
			q := <-waits
			if n := s.Stats(); n.Suspended != 1 || n.Blocked != 0 {
				t.Errorf("%d wait, %d with a goroutine", n.Suspended, n.Blocked)
			}
			return q
		}
		want := func(cause error, answer string) {
			t.Helper()
			if got := <-causes; !errors.Is(got, cause) || (got == nil) != (cause == nil) {
				t.Errorf("the cause is %v, want %v", got, cause)
			}
			if got := <-answers; got != answer {
				t.Errorf("the answer is %q, want %q", got, answer)
			}
		}
		if !ask(t.Context()).Resume() {
			t.Error("the wait has ended")
		}
		want(nil, "answer of HTTP/2.0")
		ctx, cancel := context.WithCancel(t.Context())
		ask(ctx)
		cancel()
		want(park.ErrClientGone, "none")
		ask(t.Context())
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		want(http.ErrServerClosed, "answer of HTTP/2.0")
	})
}
