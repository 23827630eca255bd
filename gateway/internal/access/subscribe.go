package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/socknotify/socknotify/gateway/internal/event"
	"github.com/socknotify/socknotify/gateway/internal/hub"
	"github.com/socknotify/socknotify/gateway/internal/stream"
	"github.com/socknotify/socknotify/gateway/internal/webhook"
)

// An Ask is a request to subscribe, checked and allowed.
type Ask struct {
	Wants  []hub.Want
	Form   event.Form
	Gap    *event.Gap // that the client must be told of, or nil
	Stored bool       // the client wants to know what is stored; a poll does not wait for more
	ID     uint64     // of the connection
	hub.Identity
	Client    string  // for the limits
	Transport string  // as webhooks name it
	Rights    *Rights // what the client may do on its connection
	Silent    bool    // it may not publish on it, because of the origin of its page
	Kept      *bool   // set when there is a connection that counts the client out when it ends
	Extra     any     // what another protocol has besides, such as Mercure's
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
				c.Gone(a.ID)
			}
		}()
		if c.Config.MaxConns > 0 && clients > int64(c.Config.MaxConns) {
			c.busy(w, r, "MaxConns")
			return
		}
		if !c.users.add(a.ID, a.Client, c.Config.MaxConnsPerUser) {
			c.Refuse(w, r, &Denial{http.StatusTooManyRequests,
				fmt.Sprintf("gateway: more than %d connections of a user", c.Config.MaxConnsPerUser), max(c.Config.Retry, time.Second)})
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
	a.ID = c.Hub.Clients.NewID()
	a.know(c, r, g)
	if wait := c.subscribing.Take(a.Client); wait > 0 {
		c.Refuse(w, r, &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait})
		return false
	}
	return true
}

// know notes what a grant says of the client.
func (a *Ask) know(c *Control, r *http.Request, g *Grant) {
	a.User, a.Client = strings.Clone(g.Subject), c.KeyOf(g.Subject, r.RemoteAddr)
	if !g.Expires.IsZero() {
		a.Expires = g.Expires.Unix()
	}
}

// PermitSubscribe returns why a client may not subscribe to one more topic now, or nil.
func (c *Control) PermitSubscribe(rights *Rights, user, topic, client string) *Denial {
	switch wait := c.subscribing.Take(client); {
	case c.Draining.Load():
		return Later(ErrDrain)
	case wait > 0:
		return &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait}
	case !c.MayRead(rights, user, topic):
		return NotAllowed(topic)
	}
	return nil
}

// AskSubscribe asks the webhook whether a client may subscribe to a topic. It returns why not, or nil.
func (c *Control) AskSubscribe(ctx context.Context, q webhook.Request, topic string) *Denial {
	if c.Hooks == nil || c.Hooks.Subscribe == "" {
		return nil
	}
	q.Channel = topic
	_, err := c.Hooks.Ask(ctx, c.Hooks.Subscribe, q)
	return denialOfHook(err)
}

// Renew looks at the new token of a client, which is that of r, as at a connect. It returns the rights
// that the client has by it and when it expires, in seconds since 1970 or 0, or why it is refused.
func (c *Control) Renew(r *http.Request, s *hub.Subscriber, client, transport string) (
	rights *Rights, expires int64, refused *Denial) {
	if wait := c.subscribing.Take(client); wait > 0 {
		return nil, 0, &Denial{http.StatusTooManyRequests, ErrRate.Error(), wait}
	}
	g, err := c.Permission(r)
	if err != nil {
		return nil, 0, &Denial{Status: http.StatusUnauthorized, Text: "not authorized"}
	}
	a := Ask{ID: s.ID, Transport: transport}
	a.know(c, r, &g)
	if f := c.Consult(r, &a, nil); f != nil {
		return nil, 0, f
	}
	if a.User != s.User {
		return nil, 0, &Denial{Status: http.StatusForbidden, Text: "the token is of another user"}
	}
	return c.RightsOf(&g), a.Expires, nil
}

// BeginChange begins a request that changes a connection, as BeginQuestion does.
func (c *Control) BeginChange(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func(), ok bool) {
	if !c.enter() {
		c.Unavailable(w, r, ErrDrain)
		return nil, nil, false
	}
	ctx, cancel := context.WithTimeout(c.Hub.Ctx, JoinTimeout)
	stop := context.AfterFunc(r.Context(), cancel)
	return ctx, func() {
		stop()
		cancel()
		c.Opening.Done()
	}, true
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

// Gone counts out the connection with an id.
func (c *Control) Gone(id uint64) {
	c.Clients.Add(-1)
	c.users.remove(id)
}

// Left counts a client out, and tells the webhook.
func (c *Control) Left(s *hub.Subscriber, transport string) {
	c.Hub.Leave(s)
	c.Gone(s.ID)
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
