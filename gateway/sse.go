package gateway

import (
	"context"
	"net/http"
	"sync"
)

// serveEvents answers a request for Server-Sent Events. It writes the beginning of the answer, delivers what the client has
// missed, and parks the connection. The answer has no length; it ends with the connection.
func (g *Gateway) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, a ask) {
	if r.ProtoMajor != 1 {
		http.Error(w, "want HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	header := w.Header()
	header.Set("Content-Type", eventStream)
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no") // for nginx
	s, b := g.takeOver(w, a, a.form)
	if s == nil {
		return
	}
	b = append(append(b, "\r\n"...), retryBlock(g.config.Retry)...)
	for i, w := range a.wants {
		if !isLive(w.filter) {
			if s.at == nil && len(a.wants) == 1 {
				s.at = s.one[:]
			} else if s.at == nil {
				s.at = make([]uint64, len(a.wants))
			}
			s.at[i] = w.after.seq
		}
	}
	if s.at != nil { // a client that comes back before its first event has an id, too
		b = s.appendID(b)
		if a.gap == nil {
			b = append(b, '\n')
		} else { // a client that has the id was told of the gap
			b = appendGap(b, *a.gap)
		}
	}
	s.mu.Lock()
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
	s.mu.Lock()
	s.joined = true
	s.mu.Unlock()
	s.turn(nil)
}

// appendID appends the line with the client's id. The caller holds s.mu.
func (s *stream) appendID(b []byte) []byte {
	return append(appendPositions(append(b, "id: "...), s.g.hub.epoch, s.at), '\n')
}

// catchUp moves the position of each topic up to where its feed has no further event. It reports whether one has moved. The
// caller holds s.mu.
//
// A feed gives an event to its members before it says so in checked. So what checked covers was written before, or is in the
// queue before, the id that is made of it.
func (s *stream) catchUp() (moved bool) {
	if !s.joined { // events of the history are still missing
		return false
	}
	for i := range s.topics {
		f := s.topics[i].feed
		if f.live {
			continue
		}
		if checked := f.checked.Load(); checked > s.at[i] {
			s.at[i], moved = checked, true
		}
	}
	return moved
}

// withID returns the event for a client of several topics, with an id that has the position of each. The caller holds s.mu.
func (s *stream) withID(b *[]byte, e *event) []byte {
	s.catchUp()
	*b = append(s.appendID((*b)[:0]), e.body(s.form)...)
	return *b
}

// withGap returns the block of a gap, with the id of a client that was told of it. The caller holds
// s.mu.
func (s *stream) withGap(g gap) (b []byte) {
	if s.at != nil {
		s.catchUp()
		b = s.appendID(b)
	}
	return appendGap(b, g)
}

// blocks holds buffers for withID.
var blocks = sync.Pool{New: func() any { return new([]byte) }}
