package sse_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/socknotify/socknotify/sse"
)

// A client comes back with the ID of the last event that it has got.
func ExampleServer() {
	mux := http.NewServeMux()
	replay := func(c *sse.Conn, lastID string) error {
		return c.Send(sse.Event{ID: "17", Data: "after " + lastID})
	}
	news := &sse.Server{OnOpen: func(c *sse.Conn, r *http.Request, lastID string) error {
		return replay(c, lastID)
	}}
	mux.Handle("GET /news", news)

	web := httptest.NewServer(mux)
	defer web.Close()
	r, _ := http.NewRequest("GET", web.URL+"/news", nil)
	r.Header.Set("Last-Event-ID", "16")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	next := func() {
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "data") {
		}
		fmt.Println(lines.Text())
	}
	next()

	id, text := "18", "for all"
	event, err := sse.Prepare(sse.Event{ID: id, Data: text})
	if err != nil {
		panic(err)
	}
	news.Broadcast(event)
	next()
	answer.Body.Close()
	news.Shutdown(context.Background())
	// Output:
	// data: after 16
	// data: for all
}
