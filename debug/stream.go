package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxTraces is how many may be under way at once.
	maxTraces = 16
	// traceEvery is how often what has happened is sent.
	traceEvery = 100 * time.Millisecond
	// maxDescribed bounds what one trace remembers of registrations.
	maxDescribed = 10000
)

// traceKinds are the kinds' names.
func traceKinds() (names []string) {
	for k := TraceNotified; k <= TraceCompleted; k++ {
		names = append(names, k.String())
	}
	return names
}

// A tracing is one stream.
type tracing struct {
	source source
	trace  *Trace
	socket uint64
	one    bool   // that socket alone
	kind   string // "": any
	known  map[uint64]Event
	missed uint64
	buf    [256]TraceEntry
}

func (h *Handler) serveTrace(w http.ResponseWriter, r *http.Request, s source) {
	t := &tracing{source: s, known: map[uint64]Event{}}
	v := r.URL.Query()
	if text := v.Get("socket"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("socket=%q is not a number", text))
			return
		}
		t.socket, t.one = n, true
	}
	if t.kind = v.Get("kind"); t.kind != "" && !slices.Contains(traceKinds(), t.kind) {
		fail(w, http.StatusBadRequest, fmt.Sprintf("kind=%q is not one of %s", t.kind, strings.Join(traceKinds(), ", ")))
		return
	}
	if s.status().Closed {
		fail(w, http.StatusGone, "the port is closed") // which an EventSource takes for a no
		return
	}
	if !h.oneMore() {
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("%d traces are under way", maxTraces))
		return
	}
	defer h.oneLess()
	sse := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	kind := "application/x-ndjson"
	if sse {
		kind = "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the write deadline stays; a stream of HTTP/2 has its own
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	t.trace = s.trace()
	defer t.trace.Close()
	out := &outlet{ResponseController: http.NewResponseController(w)}
	defer out.end()
	over := h.over(r)
	left := make(chan struct{})
	defer close(left)
	go func() { // the stream may be in a write
		select {
		case <-h.done:
			out.end()
		case <-over:
			out.end()
		case <-left:
		}
	}()
	clock := time.NewTicker(traceEvery)
	defer clock.Stop()
	for first := sse; ; first = false {
		out.begin()
		if first {
			io.WriteString(w, "retry: 1000\n\n")
		}
		if t.send(w, sse) != nil || out.Flush() != nil {
			return
		}
		out.pause()
		if s.status().Closed {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-h.done:
			return
		case <-over:
			return
		case <-clock.C:
		}
	}
}

// over returns a channel that is closed when the server of a request is shut down, which otherwise waits for the end of
// a stream that has none. It is nil where the server is not of net/http.
func (h *Handler) over(r *http.Request) <-chan struct{} {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	over := h.servers[server]
	if over == nil {
		over = make(chan struct{})
		if h.servers == nil {
			h.servers = make(map[*http.Server]chan struct{})
		}
		h.servers[server] = over
		server.RegisterOnShutdown(sync.OnceFunc(func() { close(over) }))
	}
	return over
}

const (
	// traceWait is how long a client may take none of what is written to it.
	traceWait = 10 * time.Second
	// traceEnd is how long the end of a stream may take.
	traceEnd = time.Second
)

// An outlet sets the write deadlines of a stream, which outlasts the server's WriteTimeout. Where the deadline cannot be
// set the stream ends with that.
type outlet struct {
	*http.ResponseController
	mu    sync.Mutex
	ended bool
}

func (o *outlet) set(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.SetWriteDeadline(at)
	}
}

// begin is before a write, and pause after: a stream of HTTP/2 is reset by a deadline that passes, also between two
// writes.
func (o *outlet) begin() { o.set(time.Now().Add(traceWait)) }
func (o *outlet) pause() { o.set(time.Time{}) }

// end leaves a short time for what is being written and for the end of the stream. It may be called by any goroutine,
// until the handler returns.
func (o *outlet) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		o.SetWriteDeadline(time.Now().Add(traceEnd))
	}
}

// send writes what has happened, in one server-sent event, or a line each.
func (t *tracing) send(w io.Writer, sse bool) error {
	events := t.read()
	if len(events) == 0 {
		return nil
	}
	if sse {
		b, err := json.Marshal(events)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "data: %s\n\n", b)
		return err
	}
	enc := json.NewEncoder(w)
	for i := range events {
		if err := enc.Encode(&events[i]); err != nil {
			return err
		}
	}
	return nil
}

// read takes what there is to be read, but for what nobody asked for.
func (t *tracing) read() (out []Event) {
	for rounds := 0; rounds < 16; rounds++ { // a whole ring
		n := t.trace.Read(t.buf[:])
		if lost := t.trace.Lost(); lost > t.missed {
			out = append(out, Event{Time: time.Now(), Kind: "missed", Missed: lost - t.missed})
			t.missed = lost
		}
		for i := range t.buf[:n] {
			e := &t.buf[i]
			if t.one && uint64(e.Socket) != t.socket || t.kind != "" && e.Kind.String() != t.kind {
				continue
			}
			out = append(out, t.event(e))
		}
		if n < len(t.buf) {
			break
		}
	}
	return out
}

func (t *tracing) event(e *TraceEntry) Event {
	ev := Event{}
	if e.ID != 0 {
		var ok bool
		if ev, ok = t.known[e.ID]; !ok && t.source.describe(e.Socket, e.ID, &ev) {
			if len(t.known) >= maxDescribed {
				clear(t.known)
			}
			t.known[e.ID] = ev
		}
	}
	ev.Time, ev.Kind, ev.Socket, ev.ID = e.Time, e.Kind.String(), uint64(e.Socket), e.ID
	if e.Events != 0 {
		ev.Events = e.Events.String()
	}
	ev.Data = uint64(e.Data)
	if e.Kind == TraceRemoved || e.Kind == TraceLost {
		delete(t.known, e.ID)
	}
	return ev
}

func (h *Handler) oneMore() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.traces == maxTraces {
		return false
	}
	h.traces++
	return true
}

func (h *Handler) oneLess() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.traces--
}
