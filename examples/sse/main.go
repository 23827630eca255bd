// Command sse is a chat for browsers. Messages come by POST, and go to all pages as Server-Sent
// Events. A page that has lost its connection gets what it has missed.
package main

import (
	"context"
	_ "embed"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"

	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/sse"
)

//go:embed page.html
var page []byte

// A room has its messages so far, the ID of each of which is its place, and its pages.
type room struct {
	mu       sync.Mutex // also held while a message is sent, so that all pages get them in one order
	messages []*sse.Prepared
	pages    map[*sse.Conn]bool
}

func (r *room) enter(c *sse.Conn, _ *http.Request, lastID string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pages[c] = true
	seen, _ := strconv.Atoi(lastID)
	for _, m := range r.messages[min(max(seen, 0), len(r.messages)):] {
		c.SendPrepared(m)
	}
	return nil
}

func (r *room) leave(c *sse.Conn, _ error) { r.mu.Lock(); delete(r.pages, c); r.mu.Unlock() }

func (r *room) say(w http.ResponseWriter, q *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, q.Body, 1000))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, _ := sse.Prepare(sse.Event{ID: strconv.Itoa(len(r.messages) + 1), Data: string(text)})
	r.messages = append(r.messages, m)
	for c := range r.pages {
		c.SendPrepared(m) // waits for none
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	r := &room{pages: make(map[*sse.Conn]bool)}
	events := &sse.Server{OnOpen: r.enter, OnClose: r.leave}
	http.Handle("/events", events)
	http.HandleFunc("POST /say", r.say)
	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)
	own := http.NewCrossOriginProtection().Handler(http.DefaultServeMux) // other sites may not say anything
	server := park.HTTPServer{Server: &http.Server{Handler: own}}
	context.AfterFunc(ctx, func() { events.Shutdown(context.Background()); server.Close() })
	log.Printf("chat on http://%v/", l.Addr())
	log.Print(server.Serve(l))
}
