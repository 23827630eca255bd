package debug

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
)

// A query selects and orders registrations.
type query struct {
	words         []string // in lower case; all must match
	state         string
	sort          string
	compare       func(a, b *candidate) int
	descending    bool
	offset, limit int
}

const (
	defaultLimit = 50
	maxLimit     = 1000
	maxWords     = 16
)

// columns are the columns by which rows can be sorted.
var columns = []struct {
	name    string
	compare func(a, b *candidate) int
}{
	{"socket", by(func(c *candidate) uintptr { return c.Handle })},
	{"key", by(func(c *candidate) string { return c.key })},
	{"local", by(func(c *candidate) string { return c.local })},
	{"remote", by(func(c *candidate) string { return c.remote })},
	{"filter", by(func(c *candidate) socknotify.Events { return socknotify.Events(c.Filter) })},
	{"trigger", by(func(c *candidate) socknotify.Trigger { return socknotify.Trigger(c.Trigger) })},
	{"state", by(func(c *candidate) State { return State(c.State) })},
	{"notifications", by(func(c *candidate) uint64 { return c.Notifications })},
	{"last", by(func(c *candidate) int64 { return c.LastTime })},
	{"since", by(func(c *candidate) uint64 { return c.ID })}, // IDs are assigned in order of time
}

// by returns a function that compares candidates by a value.
func by[V cmp.Ordered](value func(*candidate) V) func(a, b *candidate) int {
	return func(a, b *candidate) int { return cmp.Compare(value(a), value(b)) }
}

func parseQuery(r *http.Request) (*query, error) {
	v := r.URL.Query()
	q := &query{
		words: strings.Fields(strings.ToLower(v.Get("q"))), state: v.Get("state"), sort: cmp.Or(v.Get("sort"), "socket"),
		limit: defaultLimit,
	}
	if len(q.words) > maxWords {
		return nil, badRequest("q has %d words, more than %d", len(q.words), maxWords)
	}
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
		if c.name == q.sort {
			q.compare = c.compare
		}
	}
	if q.compare == nil {
		return nil, badRequest("sort=%q is not one of %s", q.sort, strings.Join(names, ", "))
	}
	switch order := v.Get("order"); order {
	case "", "asc":
	case "desc":
		q.descending = true
	default:
		return nil, badRequest("order=%q is neither asc nor desc", order)
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
			return nil, badRequest("%s=%q is not from %d to %d", n.name, text, n.min, n.max)
		}
		*n.to = i
	}
	return q, nil
}

// A candidate is a registration that may be shown. Its texts are set only if they are needed for searching or sorting.
type candidate struct {
	observe.Info
	key           string
	local, remote string
}

// query returns the registrations that match q. It returns an error if ctx is done first.
func (s *source) query(ctx context.Context, q *query) (*debugdata.Registrations, error) {
	select {
	case s.querying <- struct{}{}:
		defer func() { <-s.querying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := &debugdata.Registrations{Port: s.title, States: map[string]int{}, Offset: q.offset, Rows: []debugdata.Row{}}
	keys := len(q.words) > 0 || q.sort == "key"
	addresses := len(q.words) > 0 || q.sort == "local" || q.sort == "remote" || keys && s.byAddress
	var found []candidate
	err := s.all(ctx, func(r *observe.Info) {
		out.Total++
		state := State(r.State).String()
		out.States[state]++
		if q.state != "" && q.state != state {
			return
		}
		c := candidate{Info: *r}
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
	})
	if err != nil {
		return nil, err
	}
	out.Matched = len(found)
	slices.SortStableFunc(found, func(a, b candidate) int {
		if q.descending {
			return q.compare(&b, &a)
		}
		return q.compare(&a, &b)
	})
	found = found[min(q.offset, len(found)):]
	for i := range found[:min(q.limit, len(found))] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, s.row(&found[i].Info))
	}
	s.dropAddresses(out.Total)
	return out, nil
}

// dropAddresses drops the cached addresses if there are many more of them than registrations.
func (s *source) dropAddresses(registrations int) {
	if len(s.names) > 2*registrations+1000 {
		s.names = nil
	}
}

// matches reports whether every word occurs in a text of c.
func (c *candidate) matches(words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{
		strconv.FormatUint(uint64(c.Handle), 10), c.key, c.local, c.remote,
		socknotify.Events(c.Filter).String(), socknotify.Trigger(c.Trigger).String(),
		State(c.State).String(),
	}, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func (s *source) row(r *observe.Info) debugdata.Row {
	k := s.addresses(r, false)
	row := debugdata.Row{
		ID: r.ID, Socket: uint64(r.Handle), Key: s.key(r, k.names.Local, k.names.Remote),
		Network: k.names.Network, Local: k.names.Local, Remote: k.names.Remote, Gone: k.gone,
		Filter:  socknotify.Events(r.Filter).String(),
		Trigger: socknotify.Trigger(r.Trigger).String(),
		State:   State(r.State).String(), Pending: r.Pending,
		Notifications: r.Notifications, LastTime: timeOf(r.LastTime), Since: timeOf(r.Since),
	}
	if r.LastTime != 0 {
		row.Last = socknotify.Events(r.Last).String()
		if r.Last == 0 {
			row.Last = "ACCEPT"
		}
	}
	return row
}
