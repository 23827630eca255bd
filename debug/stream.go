package debug

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/socknotify/socknotify"
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
	for k := socknotify.TraceNotified; k <= socknotify.TraceCompleted; k++ {
		names = append(names, k.String())
	}
	return names
}

// A tracing is one stream.
type tracing struct {
	source source
	trace  *socknotify.Trace
	socket uint64 // 0: any
	kind   string // "": any
	known  map[uint64]Event
	missed uint64
	buf    [256]socknotify.TraceEntry
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
		t.socket = n
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
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	t.trace = s.trace()
	defer t.trace.Close()
	out := http.NewResponseController(w)
	out.SetWriteDeadline(time.Time{}) // a stream outlasts the server's time-out; where it cannot, it ends with that
	if sse {
		io.WriteString(w, "retry: 1000\n\n")
	}
	clock := time.NewTicker(traceEvery)
	defer clock.Stop()
	for {
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-h.done:
			return
		case <-clock.C:
		}
		if t.send(w, sse) != nil || s.status().Closed {
			return
		}
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
			if t.socket != 0 && uint64(e.Socket) != t.socket || t.kind != "" && e.Kind.String() != t.kind {
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

func (t *tracing) event(e *socknotify.TraceEntry) Event {
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
	if e.Kind == socknotify.TraceRemoved || e.Kind == socknotify.TraceLost {
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
