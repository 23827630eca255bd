package main

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

// Workers get the jobs, those that wait and those that come later, and the end of the server.
func TestQueue(t *testing.T) {
	var lines lockedBuffer
	log.SetOutput(&lines)
	defer log.SetOutput(io.Discard)
	q := new(queue)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /jobs/next", q.next)
	mux.HandleFunc("POST /jobs", q.add)
	server := park.HTTPServer{Server: &http.Server{Handler: logged(mux)}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	url := "http://" + ln.Addr().String()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	answers := make(chan string, 10)
	next := func() {
		res, err := client.Get(url + "/jobs/next")
		if err != nil {
			answers <- err.Error()
			return
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		answers <- res.Status + " " + string(body)
	}
	post := func(job string) {
		res, err := client.Post(url+"/jobs", "text/plain", strings.NewReader(job))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	want := func(answer string) {
		t.Helper()
		if got := await.Receive(t, "an answer", answers); got != answer {
			t.Fatalf("%q, want %q", got, answer)
		}
	}
	go next()
	await.Until(t, "the worker waits", func() bool { return server.Stats().Suspended == 1 })
	post("one")
	want("200 OK one")
	post("two")
	post("three")
	next()
	next()
	want("200 OK two")
	want("200 OK three")

	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", url+"/jobs/next", nil)
		_, err := client.Do(r)
		gone <- err
	}()
	await.Until(t, "the worker waits", func() bool { return server.Stats().Suspended == 1 })
	leave()
	if await.Receive(t, "the end of the request", gone) == nil {
		t.Fatal("the request that was cancelled got an answer")
	}
	await.Until(t, "the queue knows", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.workers) == 0
	})

	go next()
	await.Until(t, "the worker waits", func() bool { return server.Stats().Suspended == 1 })
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	want("204 No Content ")
	if err := await.Receive(t, "the end of Serve", served); err != http.ErrServerClosed {
		t.Fatal(err)
	}
	if n := strings.Count(lines.String(), "GET /jobs/next took"); n != 5 {
		t.Fatalf("the log is %s", lines.String())
	}
}

// A lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
