package transport

import (
	"net/http"
	"strings"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// servePublish answers a POST: the body is the event's data, the parameter topic its topic, the header Idempotency-Key its
// key.
func (t *Server) servePublish(w http.ResponseWriter, r *http.Request) {
	g, ok := t.Access.AuthorizeWriter(w, r)
	if !ok {
		return
	}
	topics := r.URL.Query()["topic"]
	if len(topics) > 1 {
		t.Access.Reject(w, r, http.StatusBadRequest, "want one topic")
		return
	}
	topic := strings.Join(topics, "")
	if f := t.Access.Permit(g.Write, topic, t.Access.KeyOf(g.Subject, r.RemoteAddr)); f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	data, f := access.ReadBody(w, r, int64(t.Access.Config.MaxMessage))
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	from := webhook.NewRequest("", "http", g.Subject)
	stored, f := t.Access.PublishFor(r.Context(), from, topic, data, r.Header.Get("Idempotency-Key"))
	if f != nil {
		t.Access.Refuse(w, r, f)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if stored.ID == "" {
		w.WriteHeader(http.StatusAccepted)
	}
	w.Write(append(event.Encode(stored), '\n'))
}
