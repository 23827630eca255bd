package http2

import (
	"fmt"
	"net/http"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// handleHeaders opens a stream, or handles a request's trailers. The caller holds c.mu.
func (c *conn) handleHeaders(f *http2.MetaHeadersFrame) error {
	id := f.StreamID
	if id%2 == 0 {
		return c.server.count("headers_even", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	streamError := http2.StreamError{StreamID: id, Code: http2.ErrCodeProtocol}
	if st := c.stream(id); st != nil {
		return st.handleTrailers(f)
	}
	switch {
	case id <= c.last && c.wasReset(id):
		return nil
	case id <= c.last:
		return c.server.count("stream_went_down", http2.ConnectionError(http2.ErrCodeProtocol))
	}
	c.last = id
	switch {
	case len(c.streams) >= c.server.maxStreams() && c.opening < opened:
		streamError.Code = http2.ErrCodeRefusedStream
		return c.server.count("over_max_streams_race", streamError)
	case len(c.streams) >= c.server.maxStreams():
		return c.server.count("over_max_streams", streamError)
	case f.HasPriority() && f.Priority.StreamDep == id:
		return c.server.count("priority", streamError)
	}
	// A handler may run on after its stream was reset. So the handlers are counted besides the streams.
	if c.running >= c.server.maxStreams() && len(c.waiting) >= 4*c.server.maxStreams() {
		return c.server.count("too_many_early_resets", http2.ConnectionError(http2.ErrCodeEnhanceYourCalm))
	}
	st := &stream{c: c, id: id, inflow: flow.NewReceive(c.streamWindow()), outflow: flow.Send(c.initial), gotEnd: f.StreamEnded()}
	if err := st.newRequest(st.begin(), f); err != nil {
		st.cancel()
		return c.server.count("malformed_request", err)
	}
	if f.Truncated {
		st.serve = headersTooLarge
	}
	c.asks.earn()
	c.streams = append(c.streams, st)
	if len(c.streams) == 1 {
		c.changed(http.StateActive)
		st.announces = true
	}
	if d := c.server.Server.ReadTimeout; d > 0 && !st.gotEnd {
		st.startTimer(reads, d)
	}
	if d := c.server.Server.WriteTimeout; d > 0 {
		st.startTimer(writes, d)
	}
	if c.running >= c.server.maxStreams() {
		c.waiting = append(c.waiting, st)
	} else {
		c.running++
		go st.run()
	}
	return nil
}

// headersTooLarge answers a request whose header was truncated.
func headersTooLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	fmt.Fprint(w, "<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>")
}

// handleTrailers handles the HEADERS frame of a stream that is open. The caller holds c.mu.
func (st *stream) handleTrailers(f *http2.MetaHeadersFrame) error {
	streamError := http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	switch {
	case st.gotEnd:
		streamError.Code = http2.ErrCodeStreamClosed
		return st.c.server.count("headers_half_closed", streamError)
	case st.duplex(), st.r.Method == http.MethodConnect: // RFC 9113 (8.5)
		return st.c.server.count("trailers_connect", streamError)
	case !f.StreamEnded():
		return st.c.server.count("trailers_not_ended", streamError)
	case len(f.PseudoFields()) > 0:
		return st.c.server.count("trailers_pseudo", streamError)
	case st.declared >= 0 && st.received != st.declared:
		return st.c.server.count("trailers_length", streamError)
	}
	st.trailer = make(http.Header)
	for _, field := range f.RegularFields() {
		if !validTrailer(field.Name) || !trimmed(field.Value) {
			return st.c.server.count("trailers_bogus", streamError)
		}
		st.trailer.Add(field.Name, field.Value)
	}
	st.receivedEnd()
	st.wake()
	return nil
}
