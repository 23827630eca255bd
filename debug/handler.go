package debug

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"
	"time"

	"github.com/socknotify/socknotify"
)

//go:embed page
var files embed.FS

// A Handler serves the page and its JSON. It may be mounted at any path that ends in a slash.
type Handler struct {
	guard   guard
	sources []source
	history map[source]*history

	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	done   chan struct{} // closed with it
	traces int
	// servers are those that have served a trace. Each channel is closed when the server's Shutdown begins.
	servers map[*http.Server]chan struct{}
}

// longestQuery bounds what is to be parsed of a request.
const longestQuery = 4096

// An Option says what a page shows, and to whom.
type Option func(*Handler)

// Port shows a port under a name, which no other port of the page has. Keys are shown as key says, which is
// called at any time and by any goroutine, also for a key whose registration has just ended. Without key, or
// where it is nil, numbers and strings are shown as they are and pointers as such: nothing they point to is
// read, because it may be changing.
func Port[K comparable](name string, p *socknotify.Port[K], key ...func(K) string) Option {
	text := keyText[K]
	for _, f := range key {
		if f != nil {
			text = f
		}
	}
	s := newSource(name, p, text)
	return func(h *Handler) { h.sources = append(h.sources, s) }
}

// AllowRemote answers requests from other machines too.
func AllowRemote() Option { return func(h *Handler) { h.guard.remote = true } }

// AllowHosts answers requests for these host names, without port, as well as those for localhost and for
// addresses.
func AllowHosts(names ...string) Option {
	return func(h *Handler) { h.guard.hosts = append(h.guard.hosts, names...) }
}

// New makes a page, which observes its ports until it is closed, or they are. A port that has a page is
// kept by it. New panics where two ports have one name, as http.Handle does for a pattern.
func New(opts ...Option) *Handler {
	h := &Handler{history: make(map[source]*history), done: make(chan struct{})}
	for _, set := range opts {
		if set != nil {
			set(h)
		}
	}
	names := map[string]bool{}
	for _, s := range h.sources {
		if names[s.name()] {
			panic(fmt.Sprintf("debug: two ports named %q", s.name()))
		}
		names[s.name()] = true
	}
	for _, s := range h.sources {
		h.history[s] = newHistory(s)
	}
	h.mu.Lock() // sample may come first, however far away it is
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(sampleEvery, h.sample)
	return h
}

// sample takes one sample of each port and sets the timer for the next.
func (h *Handler) sample() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	alive := false
	for _, s := range h.sources {
		alive = h.history[s].sample(s) || alive
	}
	if alive {
		h.timer.Reset(sampleEvery)
	}
}

// Close ends the observation and the traces under way, also those whose clients do not read. What is asked for
// afterwards is refused.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	h.timer.Stop()
	close(h.done)
	for _, s := range h.sources {
		h.history[s].stop()
	}
}

// ServeHTTP answers a request by the last element of its path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		head.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "nothing can be changed here")
		return
	}
	if why := h.guard.refuses(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	select {
	case <-h.done:
		fail(w, http.StatusServiceUnavailable, "the page was closed")
		return
	default:
	}
	if len(r.URL.RawQuery) > longestQuery {
		fail(w, http.StatusRequestURITooLong, fmt.Sprintf("the query has more than %d bytes", longestQuery))
		return
	}
	name := path.Base(r.URL.Path)
	if r.URL.Path == "" || r.URL.Path[len(r.URL.Path)-1] == '/' {
		name = "index.html"
	}
	switch name {
	case "ports":
		h.servePorts(w)
	case "look":
		h.with(w, r, h.serveLook)
	case "status":
		h.with(w, r, h.serveStatus)
	case "history":
		h.with(w, r, h.serveHistory)
	case "registrations":
		h.with(w, r, h.serveRegistrations)
	case "trace":
		h.with(w, r, h.serveTrace)
	default:
		h.serveFile(w, r, name)
	}
}

func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	b, err := files.ReadFile("page/" + name)
	if err != nil {
		fail(w, http.StatusNotFound, "no such view: "+name)
		return
	}
	// ServeContent knows the type by the name.
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
}

// with finds the port that a request is for.
func (h *Handler) with(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request, source)) {
	name := r.URL.Query().Get("port")
	for _, s := range h.sources {
		if s.name() == name || name == "" && len(h.sources) == 1 {
			serve(w, r, s)
			return
		}
	}
	if name == "" {
		fail(w, http.StatusBadRequest, "port is missing: which of those that ports lists")
		return
	}
	fail(w, http.StatusNotFound, fmt.Sprintf("no port is named %q", name))
}

// fail answers with an error as JSON.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(Failure{why})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // whoever has gone needs no answer
}
