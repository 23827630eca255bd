package gateway

import (
	"bytes"
	"context"
	"net/http"
	"time"
)

// serveEvents answers a request for Server-Sent Events. It writes the beginning of the answer, delivers what the client has missed,
// and parks the connection. The answer has no length; it ends with the connection, so the header says Connection: close.
func (g *Gateway) serveEvents(w http.ResponseWriter, r *http.Request) {
	ask, ok := g.accept(w, r)
	if !ok {
		return
	}
	if r.ProtoMajor != 1 {
		http.Error(w, "want HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	if !g.enter() {
		g.unavailable(w, errDrain)
		return
	}
	defer g.opening.Done()
	ctx, cancel := context.WithTimeout(g.hub.ctx, joinTimeout)
	defer cancel()
	gap, err := g.hub.begin(ctx, ask.wants)
	if err != nil {
		g.unavailable(w, err)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no") // for nginx
	header.Set("Connection", "close")
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	header.Write(&head)
	head.WriteString("\r\n")
	head.Write(retryBlock(g.config.Retry))
	from := lowest(ask.wants)
	if from.seq > 0 || from.epoch != "" { // a client that comes back before its first event has an id, too
		head.Write(appendID(nil, from))
	}
	if gap != "" {
		head.Write(appendGap(nil, gap))
	}
	conn, err := takeOver(w)
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	s := g.newStream(conn, ask.form)
	s.expires = ask.expires
	s.mu.Lock()
	s.top = from.seq
	s.write(head.Bytes())
	s.mu.Unlock()
	g.open(ctx, s, ask.wants)
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

// joinTimeout bounds the time that a client takes to get what it has missed.
const joinTimeout = time.Minute
