package debug

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
)

const (
	// maxTraces is the maximum number of concurrent traces.
	maxTraces = 16
	// traceEvery is the interval at which new events are sent.
	traceEvery = 100 * time.Millisecond
	// maxDescribed is the maximum number of registrations whose description a trace caches.
	maxDescribed = 10000
)

// A traceStream is the answer to one trace request.
type traceStream struct {
	source    *source
	trace     *Trace
	socket    uint64
	oneSocket bool   // only that socket
	kind      string // "" means any
	described map[uint64]debugdata.Event
	missed    uint64
	buf       [256]TraceEntry
}

func (h *Handler) serveTrace(w http.ResponseWriter, r *http.Request) error {
	s, err := named(r, "port", h.ports())
	if err != nil {
		return err
	}
	t := &traceStream{source: s.source, described: map[uint64]debugdata.Event{}}
	v := r.URL.Query()
	if text := v.Get("socket"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return badRequest("socket=%q is not a number", text)
		}
		t.socket, t.oneSocket = n, true
	}
	if t.kind = v.Get("kind"); t.kind != "" && !slices.Contains(debugdata.TraceKinds, t.kind) {
		kinds := strings.Join(debugdata.TraceKinds, ", ")
		return badRequest("kind=%q is not one of %s", t.kind, kinds)
	}
	if s.status().Closed {
		// An EventSource does not retry after this status.
		return refusal{http.StatusGone, "the port is closed"}
	}
	select {
	case h.traces <- struct{}{}:
		defer func() { <-h.traces }()
	default:
		why := fmt.Sprintf("there are already %d traces", maxTraces)
		return refusal{http.StatusServiceUnavailable, why}
	}
	t.serve(w, r, h.until(r))
	return nil
}

// serve sends the trace until the port or the page is closed, or the client has disconnected.
func (t *traceStream) serve(w http.ResponseWriter, r *http.Request, until context.Context) {
	sse := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	kind := "application/x-ndjson"
	if sse {
		kind = "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the connection keeps the write deadline; with HTTP/2 each stream has its own
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	t.trace = &Trace{observe.StartTrace(t.source.port)}
	defer t.trace.Close()
	out := &deadlineWriter{ResponseController: http.NewResponseController(w)}
	defer out.end()
	defer context.AfterFunc(until, out.end)() // a write may be blocked
	clock := time.NewTicker(traceEvery)
	defer clock.Stop()
	for first := sse; ; first = false {
		out.beginWrite()
		if first {
			io.WriteString(w, "retry: 1000\n\n")
		}
		if t.send(w, sse) != nil || out.Flush() != nil {
			return
		}
		out.endWrite()
		if t.source.status().Closed {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-until.Done():
			return
		case <-clock.C:
		}
	}
}

// until returns a context that is done when the page is closed, or Shutdown of the request's server
// is called. Without it, Shutdown would wait for the stream, which does not end by itself.
func (h *Handler) until(r *http.Request) context.Context {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return h.ctx
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	over := h.servers[server]
	if over == nil {
		var end context.CancelFunc
		over, end = context.WithCancel(h.ctx)
		h.servers[server] = over
		server.RegisterOnShutdown(end)
	}
	return over
}

const (
	// traceWait is the timeout of a write to the client.
	traceWait = 10 * time.Second
	// traceEnd is the timeout of the last write.
	traceEnd = time.Second
)

// A deadlineWriter sets a deadline for each write of a stream, because a stream lasts longer than the server's
// WriteTimeout. If the deadline cannot be set, WriteTimeout ends the stream.
type deadlineWriter struct {
	*http.ResponseController
	mu    sync.Mutex
	ended bool
}

// set sets the deadline, unless end was called. last reports that this is that call.
func (o *deadlineWriter) set(at time.Time, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = last
		o.SetWriteDeadline(at)
	}
}

// beginWrite is called before a write and endWrite after it. endWrite clears the deadline, because with HTTP/2 a
// deadline that expires between two writes resets the stream.
func (o *deadlineWriter) beginWrite() { o.set(time.Now().Add(traceWait), false) }
func (o *deadlineWriter) endWrite()   { o.set(time.Time{}, false) }

// end limits the time for the current write and the end of the stream to traceEnd. It may be called by any
// goroutine until the handler returns.
func (o *deadlineWriter) end() { o.set(time.Now().Add(traceEnd), true) }

// send writes the new events: as one server-sent event, or one per line.
func (t *traceStream) send(w io.Writer, sse bool) error {
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

// read returns the new events that match the request.
func (t *traceStream) read() (out []debugdata.Event) {
	for rounds := 0; rounds < 16; rounds++ { // at most one ring buffer of entries
		n := t.trace.Read(t.buf[:])
		if lost := t.trace.Lost(); lost > t.missed {
			out = append(out, debugdata.Event{Time: time.Now(), Kind: "missed", Missed: lost - t.missed})
			t.missed = lost
		}
		for i := range t.buf[:n] {
			e := &t.buf[i]
			if t.oneSocket && uint64(e.Socket) != t.socket || t.kind != "" && e.Kind.String() != t.kind {
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

func (t *traceStream) event(e *TraceEntry) debugdata.Event {
	ev := debugdata.Event{}
	if e.ID != 0 {
		var ok bool
		if ev, ok = t.described[e.ID]; !ok && t.source.describe(e.Socket, e.ID, &ev) {
			if len(t.described) >= maxDescribed {
				clear(t.described)
			}
			t.described[e.ID] = ev
		}
	}
	ev.Time, ev.Kind, ev.Socket, ev.ID = e.Time, e.Kind.String(), uint64(e.Socket), e.ID
	if e.Events != 0 {
		ev.Events = e.Events.String()
	}
	ev.Data = uint64(e.Data)
	if e.Kind == TraceRemoved || e.Kind == TraceLost {
		delete(t.described, e.ID)
	}
	return ev
}
