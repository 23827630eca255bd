package debug

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/internal/debugdata"
)

// A query selects and orders registrations.
type query struct {
	words         []string // in lower case; all must match
	state         string
	sort          string
	descending    bool
	offset, limit int
}

const (
	defaultLimit = 50
	maxLimit     = 1000
	maxWords     = 16
)

// sorts returns the names of the columns by which rows can be sorted.
func sorts() []string {
	return []string{"socket", "key", "local", "remote", "filter", "trigger", "state", "notifications", "last", "since"}
}

func (h *Handler) serveRegistrations(w http.ResponseWriter, r *http.Request, s *mounted) {
	q, why := parseQuery(r)
	if why != "" {
		fail(w, http.StatusBadRequest, why)
		return
	}
	if found := s.query(r.Context(), q); found != nil { // nil if the client has disconnected
		reply(w, found)
	}
}

func parseQuery(r *http.Request) (q *query, why string) {
	v := r.URL.Query()
	q = &query{
		words: strings.Fields(strings.ToLower(v.Get("q"))), state: v.Get("state"), sort: cmp.Or(v.Get("sort"), "socket"),
		limit: defaultLimit,
	}
	if len(q.words) > maxWords {
		return nil, fmt.Sprintf("q has %d words, more than %d", len(q.words), maxWords)
	}
	if !slices.Contains(sorts(), q.sort) {
		return nil, fmt.Sprintf("sort=%q is not one of %s", q.sort, strings.Join(sorts(), ", "))
	}
	switch order := v.Get("order"); order {
	case "", "asc":
	case "desc":
		q.descending = true
	default:
		return nil, fmt.Sprintf("order=%q is neither asc nor desc", order)
	}
	for _, n := range []struct {
		name     string
		to       *int
		min, max int
	}{{"offset", &q.offset, 0, 1 << 30}, {"limit", &q.limit, 1, maxLimit}} {
		text := v.Get(n.name)
		if text == "" {
			continue
		}
		i, err := strconv.Atoi(text)
		if err != nil || i < n.min || i > n.max {
			return nil, fmt.Sprintf("%s=%q is not from %d to %d", n.name, text, n.min, n.max)
		}
		*n.to = i
	}
	return q, ""
}

// A candidate is a registration that may be shown. Its texts are set only if they are needed for searching or sorting.
type candidate[K comparable] struct {
	RegistrationInfo[K]
	key           string
	local, remote string
}

// query returns the registrations that match q. It returns nil if ctx is done first.
func (s *portSource[K]) query(ctx context.Context, q *query) *debugdata.Registrations {
	select {
	case s.querying <- struct{}{}:
		defer func() { <-s.querying }()
	case <-ctx.Done():
		return nil
	}
	out := &debugdata.Registrations{Port: s.title, States: map[string]int{}, Offset: q.offset, Rows: []debugdata.Row{}}
	keys := len(q.words) > 0 || q.sort == "key"
	addresses := len(q.words) > 0 || q.sort == "local" || q.sort == "remote" || keys && s.byAddress
	var found []candidate[K]
	if !s.all(ctx, func(r *RegistrationInfo[K]) {
		out.Total++
		state := r.State.String()
		out.States[state]++
		if q.state != "" && q.state != state {
			return
		}
		c := candidate[K]{RegistrationInfo: *r}
		if addresses {
			k := s.addresses(r, true)
			c.local, c.remote = k.names.Local, k.names.Remote
		}
		if keys {
			c.key = s.key(r, c.local, c.remote)
		}
		if c.matches(q.words) {
			found = append(found, c)
		}
	}) {
		return nil
	}
	out.Matched = len(found)
	slices.SortStableFunc(found, func(a, b candidate[K]) int {
		d := compare(q.sort, &a, &b)
		if q.descending {
			d = -d
		}
		return d
	})
	found = found[min(q.offset, len(found)):]
	for i := range found[:min(q.limit, len(found))] {
		if ctx.Err() != nil {
			return nil
		}
		out.Rows = append(out.Rows, s.row(&found[i].RegistrationInfo))
	}
	s.dropAddresses(out.Total)
	return out
}

// dropAddresses drops the cached addresses if there are many more of them than registrations.
func (s *portSource[K]) dropAddresses(registrations int) {
	if len(s.names) > 2*registrations+1000 {
		s.names = nil
	}
}

// matches reports whether every word occurs in a text of c.
func (c *candidate[K]) matches(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{
		strconv.FormatUint(uint64(c.Socket), 10), c.key, c.local, c.remote, c.Filter.String(), c.Trigger.String(), c.State.String(),
	}, "\n"))
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func compare[K comparable](by string, a, b *candidate[K]) int {
	switch by {
	case "key":
		return strings.Compare(a.key, b.key)
	case "local":
		return strings.Compare(a.local, b.local)
	case "remote":
		return strings.Compare(a.remote, b.remote)
	case "filter":
		return cmp.Compare(a.Filter, b.Filter)
	case "trigger":
		return cmp.Compare(a.Trigger, b.Trigger)
	case "state":
		return cmp.Compare(a.State, b.State)
	case "notifications":
		return cmp.Compare(a.Notifications, b.Notifications)
	case "last":
		return a.LastTime.Compare(b.LastTime)
	case "since":
		return cmp.Compare(a.ID, b.ID) // IDs are assigned in order of time
	default:
		return cmp.Compare(a.Socket, b.Socket)
	}
}

func (s *portSource[K]) row(r *RegistrationInfo[K]) debugdata.Row {
	k := s.addresses(r, false)
	row := debugdata.Row{
		ID: r.ID, Socket: uint64(r.Socket), Key: s.key(r, k.names.Local, k.names.Remote),
		Network: k.names.Network, Local: k.names.Local, Remote: k.names.Remote, Gone: k.gone,
		Filter: r.Filter.String(), Trigger: r.Trigger.String(), State: r.State.String(), Pending: r.Pending,
		Notifications: r.Notifications, LastTime: r.LastTime, Since: r.Since,
	}
	if !r.LastTime.IsZero() {
		row.Last = r.Last.String()
		if r.Last == 0 {
			row.Last = "ACCEPT"
		}
	}
	return row
}
