package presence

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/socknotify/socknotify/gateway/internal/access"
	"github.com/socknotify/socknotify/gateway/internal/event"
)

var errNoPresence = errors.New("no presence")

// Check reports what is wrong with a topic whose presence a client wants.
func (p *Presence) Check(of string) error {
	if err := event.CheckTopic(of, false); err != nil {
		return err
	}
	if !p.has(of) {
		return fmt.Errorf("topic %q: %w", of, errNoPresence)
	}
	return nil
}

// Serve answers with the members of a topic, or how many there are.
func (p *Presence) Serve(w http.ResponseWriter, r *http.Request) {
	c := p.access
	access.AllowOrigin(w, r, c.Config.Origins)
	query := r.URL.Query()
	of, counted := query.Get("topic"), query.Get("count") == "true"
	err := p.Check(of)
	if n := query.Get("count"); err == nil && !counted && n != "" && n != "false" {
		err = errors.New("count: want true or false")
	}
	if err != nil {
		c.Reject(w, r, http.StatusBadRequest, err.Error())
		return
	}
	g, ok := c.Authorize(w, r)
	if !ok {
		return
	}
	if !event.Allows(g.Presence, of) {
		c.Refuse(w, r, access.NotAllowed(event.PresencePrefix+of))
		return
	}
	ctx, done, ok := c.BeginQuestion(w, r, &g)
	if !ok {
		return
	}
	defer done()
	var answer any
	if counted {
		answer, err = p.count(ctx, of)
	} else {
		answer, err = p.attendance(ctx, of)
	}
	if err != nil {
		c.Unavailable(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(event.Encode(answer), '\n'))
}

// attendance returns the members of a topic.
func (p *Presence) attendance(ctx context.Context, of string) (a attendance, err error) {
	f, err := p.hub.Acquire(ctx, event.PresencePrefix+of)
	if err != nil {
		return a, err
	}
	defer p.hub.Release(f)
	f.Lock()
	defer f.Unlock()
	return f.Special.(*roster).attendance(), nil
}

// A tally is the number of a topic's members, which has no bound.
type tally struct {
	Count int `json:"count"`
}

// count asks all nodes how many members a topic has. A node that does not answer has none.
func (p *Presence) count(ctx context.Context, of string) (all tally, err error) {
	err = AskNodes(ctx, p, countSubject, of, func(a nodeTally) (string, bool) {
		all.Count += a.Count
		return a.Node, true
	})
	return all, err
}
