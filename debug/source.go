package debug

import (
	"context"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A source is a port, whatever its keys are.
type source interface {
	name() string
	observe() (stop func())
	status() Status
	query(ctx context.Context, q *query) *Registrations
	trace() *Trace
	// describe fills in what is known of a registration; false says that it is over.
	describe(socket uintptr, id uint64, e *Event) bool
}

type portSource[K comparable] struct {
	title string
	port  *socknotify.Port[K]
	in    *port.Port // in it
	text  func(K) string

	turn chan struct{} // holds an element during a query: there is one at a time
	// names are addresses by registration, which it takes system calls to ask for.
	names map[uint64]known
}

type known struct {
	names sock.Names
	gone  string
	at    time.Time
}

const (
	// fresh is how long addresses are good for that may be others by now. Those of a stream that is connected
	// stay, and only whether it was closed without a word is asked again, for what is shown.
	fresh     = 10 * time.Second
	freshPair = time.Minute
	// scanned is how many registrations are copied at a time.
	scanned = 256
)

func newSource[K comparable](name string, p *socknotify.Port[K], text func(K) string) *portSource[K] {
	return &portSource[K]{title: name, port: p, in: port.Of(p), text: text, turn: make(chan struct{}, 1)}
}

func (k *known) good() time.Duration {
	if k.names.Network == "tcp" && k.names.Remote != "" {
		return freshPair
	}
	return fresh
}

// found tells whether addresses are good for a search: old ones are, but for those of a socket that may have
// connected since.
func (k *known) found() bool {
	return k.names.Remote != "" || k.names.Network != "tcp" && k.names.Network != "udp"
}

func (s *portSource[K]) name() string           { return s.title }
func (s *portSource[K]) observe() (stop func()) { return s.in.Observe() }
func (s *portSource[K]) trace() *Trace          { return &Trace{s.in.StartTrace()} }

func (s *portSource[K]) status() Status {
	p := takeSnapshot(s.port, s.in, 0, 0)
	return Status{
		Port: s.title, Time: p.Time, Backend: p.Backend, KernelEdges: p.KernelEdges, Closed: p.Closed,
		Observed: p.Observed, Counts: Counts(p.Stats), Spread: p.Spread,
	}
}

// all calls f for every registration. It reports false where the context was done before the end.
func (s *portSource[K]) all(ctx context.Context, f func(*RegistrationInfo[K])) bool {
	from := uintptr(0)
	for more := true; more; {
		if ctx.Err() != nil {
			return false
		}
		page := takeSnapshot(s.port, s.in, from, scanned)
		for i := range page.Registrations {
			f(&page.Registrations[i])
		}
		from, more = page.Next, page.More
	}
	return true
}

// addresses asks for a registration's, unless they were found before. Its caller has the turn.
func (s *portSource[K]) addresses(r *RegistrationInfo[K], search bool) known {
	k, ok := s.names[r.ID]
	if ok && r.ID != 0 && (search && k.found() || time.Since(k.at) < k.good()) {
		return k
	}
	k = known{at: time.Now()}
	names, err := addresses(s.in, r)
	if err != nil {
		k.gone = err.Error()
	}
	k.names = names
	if r.ID != 0 {
		if s.names == nil {
			s.names = make(map[uint64]known)
		}
		s.names[r.ID] = k
	}
	return k
}

func (s *portSource[K]) describe(socket uintptr, id uint64, e *Event) bool {
	page := takeSnapshot(s.port, s.in, socket, 1)
	if len(page.Registrations) == 0 || page.Registrations[0].ID != id {
		return false
	}
	r := &page.Registrations[0]
	e.Key = s.text(r.Key)
	if names, err := addresses(s.in, r); err == nil {
		e.Local, e.Remote = names.Local, names.Remote
	}
	return true
}
