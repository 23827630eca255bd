package access

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// AuthorizeWriter returns what a client may do that publishes or gives orders. If its origin or its
// token is refused, authorizeWriter answers, and ok is false.
func (c *Control) AuthorizeWriter(w http.ResponseWriter, r *http.Request) (g Grant, ok bool) {
	AllowOrigin(w, r, c.Config.PublishOrigins)
	if !c.Config.MayPublish(r) {
		c.Refuse(w, r, &Denial{Status: http.StatusForbidden, Text: "this origin may not publish"})
		return g, false
	}
	return c.Authorize(w, r)
}

// ReadBody reads the body of a publisher's request, of at most so many bytes, whose time BoundBody has
// bounded.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *Denial) {
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // so that the body is not waited for
		return nil, DenialOf(stream.ErrTooLong)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		f := DenialOf(err)
		if f.Status == http.StatusRequestTimeout {
			w.Header().Set("Connection", "close")
		}
		return nil, f
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // only now, because net/http would wait for the rest of the body
	return data, nil
}

// Permit returns why a client of a user may not publish to a topic now, or nil.
func (c *Control) Permit(write []string, user, topic, client string) *Denial {
	if err := event.CheckTopic(topic, false); err != nil {
		return &Denial{Status: http.StatusBadRequest, Text: err.Error()}
	}
	if !event.Allows(write, topic) || !c.Config.Words.mayWrite(user, topic) {
		return NotAllowed(topic)
	}
	if wait := c.Publishing.Take(client); wait > 0 {
		return &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait}
	}
	return nil
}

// AskPublish asks the webhook whether a client may publish an event. It returns why not, or nil.
func (c *Control) AskPublish(ctx context.Context, q webhook.Request, topic, data string) *Denial {
	return denialOfHook(c.Hooks.AskPublish(ctx, q, topic, data))
}

// PublishFor publishes an event of a client, if the webhook allows it.
func (c *Control) PublishFor(ctx context.Context, q webhook.Request, topic string, data []byte, key string) (stream.Receipt, *Denial) {
	if f := c.AskPublish(ctx, q, topic, string(data)); f != nil {
		return stream.Receipt{}, f
	}
	r, err := c.Publisher.Publish(ctx, topic, data, key)
	if err != nil {
		return r, DenialOf(err)
	}
	return r, nil
}
