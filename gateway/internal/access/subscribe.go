package access

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
)

// An Ask is a request to subscribe, checked and allowed.
type Ask struct {
	Wants  []hub.Want
	Form   event.Form
	Gap    *event.Gap // that the client must be told of, or nil
	Stored bool       // the client wants to know what is stored; a poll does not wait for more
	ID     uint64     // of the connection
	hub.Identity
	Client    string   // for the limits
	Transport string   // as webhooks name it
	Write     []string // topics that the client may publish to on its connection
	Kept      *bool    // set when there is a connection that counts the client out when it ends
	Extra     any      // what another protocol has besides, such as Mercure's
}

// JoinTimeout bounds the time that a client takes to get what it has missed.
const JoinTimeout = time.Minute

// askKey is the key of the ask in the context of a request that becomes a connection.
type askKey struct{}

// With returns the request that has the ask, for askOf. ctx is that of the request.
func (a Ask) With(ctx context.Context, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(ctx, askKey{}, a))
}

// AskOf returns the ask of a request of with.
func AskOf(r *http.Request) Ask { return r.Context().Value(askKey{}).(Ask) }

// Subscribe returns a handler of requests to subscribe. accept checks a request and answers it if it
// may not, begin finds out where each topic begins, and serve makes a client of it. ctx is done when
// the gateway is closed, when the client is known to be gone, or after joinTimeout.
func (c *Control) Subscribe(accept func(http.ResponseWriter, *http.Request) (Ask, bool),
	begin func(context.Context, *Ask) error,
	serve func(context.Context, http.ResponseWriter, *http.Request, Ask)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead { // ServeMux takes it for GET
			w.Header().Set("Allow", http.MethodGet)
			c.Reject(w, r, http.StatusMethodNotAllowed, "want GET")
			return
		}
		a, ok := accept(w, r)
		if !ok {
			return
		}
		if !c.enter() {
			c.Unavailable(w, r, ErrDrain)
			return
		}
		defer c.Opening.Done()
		a.Kept = new(bool)
		clients := c.Clients.Add(1)
		defer func() {
			if !*a.Kept {
				c.Clients.Add(-1)
			}
		}()
		if c.Config.MaxConns > 0 && clients > int64(c.Config.MaxConns) {
			c.busy(w, r, "MaxConns")
			return
		}
		ctx, cancel := context.WithTimeout(c.Hub.Ctx, JoinTimeout)
		defer cancel()
		defer context.AfterFunc(r.Context(), cancel)()
		if err := begin(ctx, &a); err != nil {
			c.Unavailable(w, r, err)
			return
		}
		serve(ctx, w, r, a)
	}
}

// Admit reports whether a request to subscribe may be looked at now. If not, admit answers it.
func (c *Control) Admit(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case c.Draining.Load():
		c.Unavailable(w, r, ErrDrain)
		return false
	case c.arrivals != nil && !c.arrivals.Allow():
		c.busy(w, r, "AcceptRate")
		return false
	}
	return true
}

// Introduce gives a request to subscribe the id of its connection, and what its grant says of the
// client. It reports whether the client's rate allows the request. If not, introduce answers it.
func (c *Control) Introduce(w http.ResponseWriter, r *http.Request, a *Ask, g *Grant) bool {
	a.ID, a.User = c.Hub.Clients.NewID(), strings.Clone(g.Subject)
	a.Client = c.KeyOf(g.Subject, r.RemoteAddr)
	if !g.Expires.IsZero() {
		a.Expires = g.Expires.Unix()
	}
	if wait := c.subscribing.Take(a.Client); wait > 0 {
		c.Refuse(w, r, &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait})
		return false
	}
	return true
}

var errBusy = errors.New("gateway: too many clients")

// busy answers that the client should come back, because of a limit.
func (c *Control) busy(w http.ResponseWriter, r *http.Request, limit string) {
	c.Log.Log(levelLimit, "client refused", "limit", limit, "remote", r.RemoteAddr)
	c.Unavailable(w, r, errBusy)
}

// Identify gives a new subscriber what the request says of it.
func (a *Ask) Identify(s *hub.Subscriber) {
	s.ID, s.Identity = a.ID, &hub.Anonymous
	if a.Identity != hub.Anonymous {
		who := a.Identity
		s.Identity = &who
	}
}

// Left counts a client out, and tells the webhook.
func (c *Control) Left(s *hub.Subscriber, transport string) {
	c.Hub.Leave(s)
	c.Clients.Add(-1)
	c.Hooks.Left(c.Hub.Clients.Name(s.ID), s.User, transport)
}

// BeginQuestion begins a request that asks about other clients. It has answered the request if it
// returns false. Otherwise done must be called. ctx ends with the request, with the gateway, and after
// requestTimeout.
func (c *Control) BeginQuestion(w http.ResponseWriter, r *http.Request, g *Grant) (
	ctx context.Context, done func(), ok bool) {
	if wait := c.subscribing.Take(c.KeyOf(g.Subject, r.RemoteAddr)); wait > 0 {
		c.Refuse(w, r, &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait})
		return nil, nil, false
	}
	if !c.enter() {
		c.Unavailable(w, r, ErrDrain)
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(r.Context(), stream.RequestTimeout)
	stop := context.AfterFunc(c.Hub.Ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		c.Opening.Done()
	}, true
}
