package access

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// Consult asks the webhooks whether a client may connect, and subscribe to topics.
func (c *Control) Consult(r *http.Request, a *Ask, topics []string) *Denial {
	h := c.Hooks
	if h == nil {
		return nil
	}
	q := webhook.NewRequest(c.Hub.Clients.Name(a.ID), a.Transport, a.User)
	result, err := h.Ask(r.Context(), h.Connect, q)
	if err != nil {
		return denialOfHook(err)
	}
	if result.User != "" {
		a.User = strings.Clone(result.User[:min(len(result.User), MaxSubject)])
		q.User, a.Client = a.User, c.KeyOf(a.User, r.RemoteAddr)
	}
	if at := result.ExpireAt; at > 0 && (a.Expires == 0 || at < a.Expires) {
		a.Expires = at
	}
	if h.Subscribe == "" {
		return nil
	}
	denials := make([]error, len(topics))
	var asking sync.WaitGroup
	for i, topic := range topics {
		asking.Go(func() {
			q := q
			q.Channel = topic
			_, denials[i] = h.Ask(r.Context(), h.Subscribe, q)
		})
	}
	asking.Wait()
	return denialOfHook(cmp.Or(denials...))
}

// denialOfHook returns the answer to a client that a webhook has refused, or nil.
func denialOfHook(err error) *Denial {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, webhook.ErrNoAnswer):
		return Later(err)
	default:
		return &Denial{Status: http.StatusForbidden, Text: err.Error()}
	}
}
