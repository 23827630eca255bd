package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// A lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Requests wait without a goroutine below chi's router and middleware. Their then gets path values,
// and no value of the context that chi uses again for the next request.
func TestSuspendChi(t *testing.T) {
	var lines lockedBuffer
	logger := middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: log.New(&lines, "", 0), NoColor: true})
	waits := make(chan *park.Suspended, 100)
	router := chi.NewRouter()
	router.Use(middleware.RequestID, middleware.ClientIPFromHeader("X-Real-Ip"), logger, middleware.Recoverer,
		middleware.Compress(5), middleware.SetHeader("X-Test", "set"))
	router.Get("/topics/{topic}/next", func(w http.ResponseWriter, r *http.Request) {
		id := middleware.GetReqID(r.Context())
		err := park.Suspend(w, r, func(q *park.Suspended) { waits <- q }, func(w http.ResponseWriter, r *http.Request, _ *park.Suspended) {
			w.Header().Set("Content-Type", "text/plain")
			fmt.Fprintf(w, "%s %q %q %v %v %v", r.PathValue("topic"), chi.URLParam(r, "topic"),
				middleware.GetReqID(r.Context()), id != "", chi.RouteContext(r.Context()) == nil, r.Pattern)
		})
		if err != nil {
			t.Error(err)
		}
	})
	server := park.HTTPServer{Server: &http.Server{Handler: router}}
	ln := listen(t)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	const n = 20
	answers := make(chan string, n)
	for i := range n {
		go func() {
			r, _ := http.NewRequest("GET", fmt.Sprintf("http://%s/topics/t%d/next", ln.Addr(), i), nil)
			r.Header.Set("Accept-Encoding", "gzip")
			res, err := client.Do(r)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer res.Body.Close()
			text, _ := io.ReadAll(res.Body)
			if res.Header.Get("X-Test") != "set" || res.Header.Get("Content-Encoding") != "" {
				t.Error(res.Header)
			}
			answers <- string(text)
		}()
	}
	await.Until(t, "all wait without a goroutine", func() bool {
		st := server.Stats()
		return st.Suspended == n && st.Blocked == 0 && st.Parked == n
	})
	if got := strings.Count(lines.String(), "GET"); got != n {
		t.Errorf("%d lines were logged while the requests wait: %s", got, lines.String())
	}
	want := make(map[string]bool)
	for i := range n {
		(<-waits).Resume()
		want[fmt.Sprintf(`t%d "" "" true true /topics/{topic}/next`, i)] = true
	}
	for range n {
		got := await.Receive(t, "an answer", answers)
		if !want[got] {
			t.Errorf("got %q", got)
		}
		delete(want, got)
	}
	must(t, server.Shutdown(context.Background()))
	if err := <-served; err != http.ErrServerClosed {
		t.Error(err)
	}
}
