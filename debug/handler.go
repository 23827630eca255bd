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
	"github.com/socknotify/socknotify/internal/debugdata"
)

//go:embed page
var files embed.FS

// A Handler serves the page and its JSON. It may be mounted at any path that ends in a slash.
type Handler struct {
	guard    guard
	services []*shown // not changed after New
	began    time.Time

	mu     sync.Mutex
	mounts []*mounted
	timer  *time.Timer
	closed bool
	done   chan struct{} // closed by Close
	traces int
	// servers holds the servers that have served a trace. Each channel is closed when the server's Shutdown is
	// called.
	servers map[*http.Server]chan struct{}
}

// maxQuery is the maximum length of the query of a request.
const maxQuery = 4096

// An Option configures a page.
type Option func(*Handler)

// Port shows a port under a name, which must be unique on the page. key returns the text for a key. It is called at
// any time and by any goroutine, also for a key whose registration has just ended. Without key, or if it is nil,
// numbers and strings are shown as they are. For a pointer the remote address of the socket is shown instead, or else the
// local one, or else the pointer. The page does not read what a pointer points to, because it may be changing concurrently.
func Port[K comparable](name string, p *socknotify.Port[K], key ...func(K) string) Option {
	var text func(K) string
	for _, f := range key {
		if f != nil {
			text = f
		}
	}
	s := newSource(name, p, text)
	return func(h *Handler) { h.mounts = append(h.mounts, &mounted{source: s}) }
}

// AllowRemote serves requests from other machines too.
func AllowRemote() Option { return func(h *Handler) { h.guard.remote = true } }

// AllowHosts serves requests for these host names too, besides localhost and IP addresses. The names have no port.
func AllowHosts(names ...string) Option {
	return func(h *Handler) { h.guard.hosts = append(h.guard.hosts, names...) }
}

// New returns a page. The page observes each port until the page or the port is closed, and keeps a reference to
// it. New panics if two ports, or two of servers and lots, have the same name.
func New(opts ...Option) *Handler {
	h := &Handler{began: time.Now(), done: make(chan struct{})}
	for _, set := range opts {
		if set != nil {
			set(h)
		}
	}
	names := map[string]bool{}
	for _, m := range h.mounts {
		if names[m.name()] {
			panic(fmt.Sprintf("debug: two ports named %q", m.name()))
		}
		names[m.name()] = true
	}
	clear(names)
	for _, s := range h.services {
		if names[s.name] {
			panic(fmt.Sprintf("debug: two servers named %q", s.name))
		}
		names[s.name] = true
	}
	for _, m := range h.mounts {
		m.history = newHistory(m.source)
	}
	h.mu.Lock() // sample may run before h.timer is set
	defer h.mu.Unlock()
	for _, s := range h.services {
		s.sample()
	}
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
	alive := len(h.services) > 0
	for _, m := range h.mounts {
		alive = m.sample(m.source) || alive
	}
	for _, s := range h.services {
		s.sample()
	}
	h.adopt() // which takes the first sample of a new port
	if alive {
		h.timer.Reset(sampleEvery)
	}
}

// Close ends the observation and all traces, also those whose clients do not read. Later requests are refused.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	h.timer.Stop()
	close(h.done)
	for _, m := range h.mounts {
		m.stop()
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
		fail(w, http.StatusMethodNotAllowed, "the page is read-only")
		return
	}
	if why := h.guard.refuses(r); why != "" {
		fail(w, http.StatusForbidden, why)
		return
	}
	select {
	case <-h.done:
		fail(w, http.StatusServiceUnavailable, "the page is closed")
		return
	default:
	}
	if len(r.URL.RawQuery) > maxQuery {
		fail(w, http.StatusRequestURITooLong, fmt.Sprintf("the query has more than %d bytes", maxQuery))
		return
	}
	name := path.Base(r.URL.Path)
	if r.URL.Path == "" || r.URL.Path[len(r.URL.Path)-1] == '/' {
		name = "index.html"
	}
	switch name {
	case "servers":
		h.serveServers(w)
	case "server":
		h.serveServer(w, r)
	case "ports":
		h.servePorts(w)
	case "view":
		h.with(w, r, h.serveView)
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
	// ServeContent derives the content type from the name.
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
}

// with calls serve with the port that the request names.
func (h *Handler) with(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter, *http.Request, *mounted)) {
	name, ports := r.URL.Query().Get("port"), h.ports()
	for _, m := range ports {
		if m.name() == name || name == "" && len(ports) == 1 {
			serve(w, r, m)
			return
		}
	}
	if name == "" {
		fail(w, http.StatusBadRequest, "the parameter port is missing; see ports for the names")
		return
	}
	fail(w, http.StatusNotFound, fmt.Sprintf("no port is named %q", name))
}

// fail answers with an error as JSON.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(debugdata.Failure{Error: why})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}
