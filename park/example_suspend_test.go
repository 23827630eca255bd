package park_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/park"
)

// A waitingList has the requests that wait.
type waitingList struct {
	mu       sync.Mutex
	requests map[*park.Suspended]struct{}
}

func (l *waitingList) add(s *park.Suspended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[s] = struct{}{}
}

func (l *waitingList) remove(s *park.Suspended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.requests, s)
}

// resume resumes all of them, and returns their number.
func (l *waitingList) resume() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.requests {
		if s.Resume() {
			n++
		}
	}
	clear(l.requests)
	return n
}

var waiting = waitingList{requests: make(map[*park.Suspended]struct{})}

func userOf(r *http.Request) string { return r.URL.Query().Get("user") }
func news(user string) string       { return "news for " + user }

func poll(w http.ResponseWriter, r *http.Request) {
	user := userOf(r) // what then needs is captured here
	o := park.SuspendOptions{Timeout: 30 * time.Second}
	err := park.SuspendWith(w, r, o, waiting.add, func(w http.ResponseWriter, r *http.Request, s *park.Suspended) {
		waiting.remove(s)
		if context.Cause(r.Context()) == park.ErrWaitTimeout {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		io.WriteString(w, news(user))
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// A long poll waits without a goroutine until there is something to answer.
func ExampleSuspendWith() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := park.HTTPServer{Server: &http.Server{Handler: http.HandlerFunc(poll)}}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	answered := make(chan string)
	go func() {
		client := http.Client{Transport: new(http.Transport)}
		defer client.CloseIdleConnections()
		res, err := client.Get("http://" + listener.Addr().String() + "/?user=gopher")
		if err != nil {
			panic(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		answered <- string(text)
	}()
	for waiting.resume() == 0 {
		time.Sleep(time.Millisecond) // it waits soon; an example has no testing.TB
	}
	fmt.Println(<-answered)
	server.Shutdown(context.Background())
	fmt.Println(<-served)
	// Output:
	// news for gopher
	// http: Server closed
}
