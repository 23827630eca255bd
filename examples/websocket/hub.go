package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"github.com/socknotify/socknotify/park"
)

// A hub has all connected members.
type hub struct {
	lot     *park.Lot
	writing sync.WaitGroup

	mu      sync.Mutex
	members map[*member]struct{}
	joined  int
	closing bool
	empty   chan struct{} // closed when the hub closes and all members have left
}

// An event is a message to a page, as JSON.
type event struct {
	You  string `json:"you,omitempty"`  // the name of the receiver
	From string `json:"from,omitempty"` // the sender
	Text string `json:"text,omitempty"` // the text
	Here int    `json:"here,omitempty"` // how many are connected now
}

func newHub(ping time.Duration) (*hub, error) {
	lot, err := park.New(park.Config{IdleTimeout: ping})
	if err != nil {
		return nil, err
	}
	return &hub{lot: lot, members: make(map[*member]struct{}), empty: make(chan struct{})}, nil
}

// ServeHTTP upgrades a connection and returns, so it keeps no goroutine.
func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		http.Error(w, "not for pages of other sites", http.StatusForbidden)
		return
	}
	conn, rw, _, err := ws.UpgradeHTTP(r, w)
	if err != nil { // it has sent an error response
		if conn != nil {
			conn.Close()
		}
		return
	}
	m := &member{hub: h, conn: park.Wrap(conn)}
	if !h.join(m) {
		conn.Close()
		return
	}
	m.receive(rw.Reader) // frames that came with the request, if any; then it parks
}

// sameOrigin reports whether a request comes from a page of this server. Other pages must not act for the user.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true // not a browser
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// join reports whether the hub is open.
func (h *hub) join(m *member) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.joined++
	m.name = fmt.Sprint("Guest ", h.joined)
	h.members[m] = struct{}{}
	m.send(frame(event{You: m.name}))
	h.tellAll(event{Here: len(h.members)})
	return true
}

// leave is called once for each member that has joined, by the goroutine that owns its connection.
func (h *hub) leave(m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.members, m)
	h.tellAll(event{Here: len(h.members)})
	if h.closing && len(h.members) == 0 {
		close(h.empty)
	}
}

func (h *hub) say(m *member, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tellAll(event{From: m.name, Text: text})
}

// tellAll queues an event for all members. It does not block, and runs under the lock.
func (h *hub) tellAll(e event) {
	f := frame(e)
	for m := range h.members {
		m.send(f)
	}
}

// frame returns a frame for a page.
func frame(e event) []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	return ws.MustCompileFrame(ws.NewTextFrame(text))
}

// close tells all members that the server goes away, and waits until they have left.
func (h *hub) close(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	for m := range h.members {
		m.end(ws.CompiledCloseGoingAway)
	}
	if len(h.members) == 0 {
		close(h.empty)
	}
	h.mu.Unlock()
	select {
	case <-h.empty:
	case <-ctx.Done():
	}
	if err := h.lot.Shutdown(ctx); err != nil {
		return err
	}
	h.writing.Wait()
	return nil
}
