package gateway

import (
	"context"
	"net/http"
)

// serveEvents answers a request for Server-Sent Events. It writes the beginning of the answer, delivers what the client has
// missed, and parks the connection. The answer has no length; it ends with the connection.
func (g *Gateway) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	if r.ProtoMajor != 1 {
		http.Error(w, "want HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no") // for nginx
	s, b := g.takeOver(w, a, a.form)
	if s == nil {
		return
	}
	b = append(append(b, "\r\n"...), retryBlock(g.config.Retry)...)
	from := lowest(a.wants)
	if from.seq > 0 || from.epoch != "" { // a client that comes back before its first event has an id, too
		b = appendID(b, from)
	}
	if a.gap != "" {
		b = appendGap(b, a.gap)
	}
	s.mu.Lock()
	s.top = from.seq
	s.write(b)
	s.mu.Unlock()
	g.open(ctx, s, a.wants)
}

// open joins the hub and parks the connection.
func (g *Gateway) open(ctx context.Context, s *stream, wants []want) {
	if g.hub.join(ctx, &s.subscriber, wants) != nil {
		s.finish() // the client comes back with its id
		return
	}
	s.turn(nil)
}

// lowest returns the lowest position of the durable topics.
func lowest(wants []want) (p position) {
	for _, w := range wants {
		if w.after.epoch != "" && (p.epoch == "" || w.after.seq < p.seq) {
			p = w.after
		}
	}
	return p
}
