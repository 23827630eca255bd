package presence

import (
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

// Serve answers with the members of a topic.
func (p *Presence) Serve(w http.ResponseWriter, r *http.Request) {
	c := p.access
	access.AllowOrigin(w, r, c.Config.Origins)
	of := r.URL.Query().Get("topic")
	if err := p.Check(of); err != nil {
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
	f, err := p.hub.Acquire(ctx, event.PresencePrefix+of)
	if err != nil {
		c.Unavailable(w, r, err)
		return
	}
	defer p.hub.Release(f)
	f.Lock()
	a := f.Special.(*roster).attendance()
	f.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(append(event.Encode(a), '\n'))
}
