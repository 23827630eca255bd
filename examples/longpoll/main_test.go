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
	q := newQueue()
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
	c := &client{t, &http.Client{Transport: new(http.Transport)}, url, make(chan string, 10)}
	defer c.http.CloseIdleConnections()
	waiting := func(n int) bool { // a request is counted a moment before it is in the queue
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.workers) == n && server.Stats().Suspended == n
	}
	go c.next()
	await.Until(t, "the worker waits", func() bool { return waiting(1) })
	c.post("one")
	c.want("200 OK one")
	c.post("two")
	c.post("three")
	c.next()
	c.next()
	c.want("200 OK two")
	c.want("200 OK three")

	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", url+"/jobs/next", nil)
		_, err := c.http.Do(r)
		gone <- err
	}()
	await.Until(t, "the worker waits", func() bool { return waiting(1) })
	leave()
	if await.Receive(t, "the end of the request", gone) == nil {
		t.Fatal("the request that was cancelled got an answer")
	}
	await.Until(t, "it has left", func() bool { return waiting(0) })

	go c.next()
	await.Until(t, "the worker waits", func() bool { return waiting(1) })
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.want("204 No Content ")
	if err := await.Receive(t, "the end of Serve", served); err != http.ErrServerClosed {
		t.Fatal(err)
	}
	if n := strings.Count(lines.String(), "GET /jobs/next took"); n != 5 {
		t.Fatalf("the log is %s", lines.String())
	}
}

// A client posts jobs, and is a worker.
type client struct {
	t       *testing.T
	http    *http.Client
	url     string
	answers chan string
}

func (c *client) next() {
	res, err := c.http.Get(c.url + "/jobs/next")
	if err != nil {
		c.answers <- err.Error()
		return
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	c.answers <- res.Status + " " + string(body)
}

func (c *client) post(job string) {
	c.t.Helper()
	res, err := c.http.Post(c.url+"/jobs", "text/plain", strings.NewReader(job))
	if err != nil {
		c.t.Fatal(err)
	}
	res.Body.Close()
}

func (c *client) want(answer string) {
	c.t.Helper()
	if got := await.Receive(c.t, "an answer", c.answers); got != answer {
		c.t.Fatalf("%q, want %q", got, answer)
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
