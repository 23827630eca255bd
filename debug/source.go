package debug

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/observe"
	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// A source is a port with keys of any type.
type source interface {
	name() string
	observe() (stop func())
	status() debugdata.Status
	query(ctx context.Context, q *query) *debugdata.Registrations
	trace() *Trace
	// describe sets the key and addresses of a registration in e. It reports whether the registration still exists.
	describe(socket uintptr, id uint64, e *debugdata.Event) bool
}

type portSource[K comparable] struct {
	title string
	port  *socknotify.Port[K]
	in    *port.Port // the port inside port
	text  func(K) string
	// byAddress says that registrations are shown by the remote address of their sockets, because there is no text for
	// keys, which are pointers.
	byAddress bool

	querying chan struct{} // holds an element during a query, so that one runs at a time
	// names caches addresses by registration ID, because reading them needs system calls.
	names map[uint64]cachedNames
}

type cachedNames struct {
	names sock.Names
	gone  string
	at    time.Time
}

const (
	// maxNamesAge is the time for which cached addresses are used. The addresses of a connected stream do not
	// change. They are read again after maxConnectedAge only to find out whether the socket was closed.
	maxNamesAge     = 10 * time.Second
	maxConnectedAge = time.Minute
	// scanBatch is the number of registrations that are copied at a time.
	scanBatch = 256
)

func newSource[K comparable](name string, p *socknotify.Port[K], text func(K) string) *portSource[K] {
	s := &portSource[K]{title: name, port: p, in: port.Of(p), text: text, querying: make(chan struct{}, 1)}
	if text == nil {
		s.text = keyText[K]
		switch reflect.TypeFor[K]().Kind() {
		case reflect.Pointer, reflect.Chan, reflect.UnsafePointer:
			s.byAddress = true
		}
	}
	return s
}

// key returns the text for the key of a registration whose socket has these addresses.
func (s *portSource[K]) key(r *RegistrationInfo[K], local, remote string) string {
	if s.byAddress && cmp.Or(remote, local) != "" {
		return cmp.Or(remote, local)
	}
	return s.text(r.Key)
}

func (k *cachedNames) maxAge() time.Duration {
	if k.names.Network == "tcp" && k.names.Remote != "" {
		return maxConnectedAge
	}
	return maxNamesAge
}

// usableForSearch reports whether cached addresses of any age can be used for a search. That is not so for a socket
// that may have connected since.
func (k *cachedNames) usableForSearch() bool {
	return k.names.Remote != "" || k.names.Network != "tcp" && k.names.Network != "udp"
}

func (s *portSource[K]) name() string           { return s.title }
func (s *portSource[K]) observe() (stop func()) { return observe.Start(s.in) }
func (s *portSource[K]) trace() *Trace          { return &Trace{observe.StartTrace(s.in)} }

func (s *portSource[K]) status() debugdata.Status {
	p := takeSnapshot(s.port, s.in, 0, 0)
	spread := make([]debugdata.Spread, len(p.Spread))
	for i := range spread {
		spread[i] = debugdata.Spread(p.Spread[i])
	}
	return debugdata.Status{
		Port: s.title, Time: p.Time, Backend: p.Backend, KernelEdges: p.KernelEdges, Closed: p.Closed,
		Observed: p.Observed, Counts: debugdata.Counts(p.Stats), Spread: spread,
	}
}

// all calls f for every registration. It reports whether it has finished before ctx was done.
func (s *portSource[K]) all(ctx context.Context, f func(*RegistrationInfo[K])) bool {
	from := uintptr(0)
	for more := true; more; {
		if ctx.Err() != nil {
			return false
		}
		page := takeSnapshot(s.port, s.in, from, scanBatch)
		for i := range page.Registrations {
			f(&page.Registrations[i])
		}
		from, more = page.Next, page.More
	}
	return true
}

// addresses returns the addresses of a registration, from the cache if possible. The caller holds s.querying.
func (s *portSource[K]) addresses(r *RegistrationInfo[K], search bool) cachedNames {
	k, ok := s.names[r.ID]
	if ok && r.ID != 0 && (search && k.usableForSearch() || time.Since(k.at) < k.maxAge()) {
		return k
	}
	k = cachedNames{at: time.Now()}
	names, err := addresses(s.in, r)
	if err != nil {
		k.gone = err.Error()
	}
	k.names = names
	if r.ID != 0 {
		if s.names == nil {
			s.names = make(map[uint64]cachedNames)
		}
		s.names[r.ID] = k
	}
	return k
}

func (s *portSource[K]) describe(socket uintptr, id uint64, e *debugdata.Event) bool {
	page := takeSnapshot(s.port, s.in, socket, 1)
	if len(page.Registrations) == 0 || page.Registrations[0].ID != id {
		return false
	}
	r := &page.Registrations[0]
	if names, err := addresses(s.in, r); err == nil {
		e.Local, e.Remote = names.Local, names.Remote
	}
	e.Key = s.key(r, e.Local, e.Remote)
	return true
}
