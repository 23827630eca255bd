package debug

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
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
	process  ring[debugdata.ProcessSample]

	ctx    context.Context // done when the page is closed
	cancel context.CancelFunc
	traces chan struct{} // holds an element for each trace

	mu     sync.Mutex
	mounts []*mounted
	timer  *time.Timer
	// servers holds the servers that have served a trace. Each context is done when the server's
	// Shutdown is called, or the page is closed.
	servers map[*http.Server]context.Context
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
	h := &Handler{
		began: time.Now(), traces: make(chan struct{}, maxTraces),
		servers: map[*http.Server]context.Context{},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	for _, set := range opts {
		if set != nil {
			set(h)
		}
	}
	mustDiffer("ports", h.mounts)
	mustDiffer("servers", h.services)
	for _, m := range h.mounts {
		m.begin()
	}
	h.mu.Lock() // sample may run before h.timer is set
	defer h.mu.Unlock()
	for _, s := range h.services {
		s.sample()
	}
	h.sampleProcess()
	h.timer = time.AfterFunc(sampleEvery, h.sample)
	return h
}

// mustDiffer panics if two of these have the same name.
func mustDiffer[T interface{ name() string }](kind string, all []T) {
	names := map[string]bool{}
	for _, one := range all {
		if names[one.name()] {
			panic(fmt.Sprintf("debug: two %s named %q", kind, one.name()))
		}
		names[one.name()] = true
	}
}

// sample takes one sample of each port and sets the timer for the next.
func (h *Handler) sample() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	alive := len(h.services) > 0
	for _, m := range h.mounts {
		alive = m.sample() || alive
	}
	for _, s := range h.services {
		s.sample()
	}
	h.sampleProcess()
	h.adopt() // which takes the first sample of a new port
	if alive {
		h.timer.Reset(sampleEvery)
	}
}

// Close ends the observation and all traces, also those whose clients do not read. Later requests are refused.
func (h *Handler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	h.cancel()
	h.timer.Stop()
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
	err := h.check(w, r)
	if err == nil {
		err = h.answer(w, r)
	}
	var no refusal
	if errors.As(err, &no) { // otherwise the client has disconnected
		reply(w, no.status, debugdata.Failure{Error: no.why})
	}
}

// check returns an error for a request that is not served.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return refusal{http.StatusMethodNotAllowed, "the page is read-only"}
	}
	if why := h.guard.refuses(r); why != "" {
		return refusal{http.StatusForbidden, why}
	}
	if h.ctx.Err() != nil {
		return refusal{http.StatusServiceUnavailable, "the page is closed"}
	}
	if len(r.URL.RawQuery) > maxQuery {
		why := fmt.Sprintf("the query has more than %d bytes", maxQuery)
		return refusal{http.StatusRequestURITooLong, why}
	}
	return nil
}

// views are the functions whose results are sent as JSON, by the last element of the path.
var views = map[string]func(*Handler, *http.Request) (any, error){
	"servers":       (*Handler).serverNames,
	"server":        (*Handler).serverView,
	"ports":         (*Handler).portNames,
	"view":          (*Handler).view,
	"process":       func(h *Handler, r *http.Request) (any, error) { return h.processView(r, "after") },
	"status":        ofPort((*mounted).now),
	"history":       ofPort((*mounted).since),
	"registrations": ofPort((*mounted).registrations),
}

// ofPort returns a view of the port that the request names.
func ofPort[V any](
	view func(*mounted, *http.Request) (V, error),
) func(*Handler, *http.Request) (any, error) {
	return func(h *Handler, r *http.Request) (any, error) {
		m, err := named(r, "port", h.ports())
		if err != nil {
			return nil, err
		}
		return view(m, r)
	}
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request) error {
	name := path.Base(r.URL.Path)
	if r.URL.Path == "" || r.URL.Path[len(r.URL.Path)-1] == '/' {
		name = "index.html"
	}
	if name == "trace" {
		return h.serveTrace(w, r)
	}
	if view := views[name]; view != nil {
		v, err := view(h, r)
		if err == nil {
			reply(w, http.StatusOK, v)
		}
		return err
	}
	b, err := files.ReadFile("page/" + name)
	if err != nil {
		return refusal{http.StatusNotFound, "no such view: " + name}
	}
	// ServeContent derives the content type from the name.
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
	return nil
}

func (h *Handler) portNames(*http.Request) (any, error) {
	out := debugdata.Ports{Ports: []debugdata.PortName{}, Remote: h.guard.remote}
	for _, m := range h.ports() {
		st := m.status()
		out.Ports = append(out.Ports,
			debugdata.PortName{Name: m.title, Backend: st.Backend, Closed: st.Closed})
	}
	return out, nil
}

func (m *mounted) registrations(r *http.Request) (*debugdata.Registrations, error) {
	q, err := parseQuery(r)
	if err != nil {
		return nil, err
	}
	return m.query(r.Context(), q)
}

// view returns everything that the page shows in one answer, because one request costs more system
// calls than the work on the answer.
func (h *Handler) view(r *http.Request) (any, error) {
	var v debugdata.View
	m, err := named(r, "port", h.ports())
	if err != nil {
		return nil, err
	}
	found, err := m.registrations(r)
	if err != nil {
		return nil, err
	}
	v.Registrations = *found
	if v.History, err = m.since(r); err != nil {
		return nil, err
	}
	if v.Status, err = m.now(r); err != nil {
		return nil, err
	}
	v.Process, err = h.processView(r, "process")
	return v, err
}

// named returns the one of all ports or servers that a parameter of the request names. The parameter
// may be omitted if there is only one.
func named[T interface{ name() string }](r *http.Request, parameter string, all []T) (T, error) {
	var none T
	name := r.URL.Query().Get(parameter)
	for _, one := range all {
		if one.name() == name || name == "" && len(all) == 1 {
			return one, nil
		}
	}
	if name == "" {
		return none, badRequest("the parameter %s is missing; see %[1]ss for the names", parameter)
	}
	return none, refusal{http.StatusNotFound, fmt.Sprintf("no %s is named %q", parameter, name)}
}

// A refusal is an error that is sent to the client as JSON.
type refusal struct {
	status int
	why    string
}

func (r refusal) Error() string { return r.why }

func badRequest(format string, args ...any) error {
	return refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}
