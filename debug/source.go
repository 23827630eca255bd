package debug

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// A source is a port with keys of any type.
type source struct {
	title string
	port  *port.Port
	stats func() socknotify.Stats
	text  func(*port.Record) string // the text for a registration's key
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

func newSource[K comparable](title string, p *socknotify.Port[K], text func(K) string) *source {
	s := &source{title: title, port: port.Of(p), stats: p.Stats, querying: make(chan struct{}, 1)}
	if text == nil {
		text = keyText[K]
		switch reflect.TypeFor[K]().Kind() {
		case reflect.Pointer, reflect.Chan, reflect.UnsafePointer:
			s.byAddress = true
		}
	}
	s.text = func(r *port.Record) string { return text(port.KeyOf[K](r)) }
	return s
}

func (s *source) name() string { return s.title }

// key returns the text for the key of a registration whose socket has these addresses.
func (s *source) key(r *observe.Info, local, remote string) string {
	if address := cmp.Or(remote, local); s.byAddress && address != "" {
		return address
	}
	return s.text(r.Record)
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

func (s *source) status() debugdata.Status {
	st := debugdata.Status{
		Port: s.title, Time: time.Now(),
		Backend: s.port.Core.Backend, KernelEdges: s.port.Core.Edges,
		Counts: debugdata.Counts(s.stats()), Spread: make([]debugdata.Spread, port.Stripes),
	}
	for i := range st.Spread {
		st.Spread[i] = debugdata.Spread(s.port.Spread(i))
	}
	st.Observed, _, _, _, st.Closed = observe.List(s.port, 0, 0)
	return st
}

// all calls f for every registration. It returns an error if ctx is done before it has finished.
func (s *source) all(ctx context.Context, f func(*observe.Info)) error {
	from := uintptr(0)
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var page []observe.Info
		_, page, from, more, _ = observe.List(s.port, from, scanBatch)
		for i := range page {
			f(&page[i])
		}
	}
	return nil
}

// addresses returns the addresses of a registration, from the cache if possible. The caller holds s.querying.
func (s *source) addresses(r *observe.Info, search bool) cachedNames {
	k, ok := s.names[r.ID]
	if ok && r.ID != 0 && (search && k.usableForSearch() || time.Since(k.at) < k.maxAge()) {
		return k
	}
	k = cachedNames{at: time.Now()}
	var err error
	if k.names, err = observe.Addresses(s.port, r.Handle, r.Record); err != nil {
		k.gone = err.Error()
	}
	if r.ID != 0 {
		if s.names == nil {
			s.names = make(map[uint64]cachedNames)
		}
		s.names[r.ID] = k
	}
	return k
}

// describe sets the key and addresses of a registration in e. It reports whether the registration
// still exists.
func (s *source) describe(socket uintptr, id uint64, e *debugdata.Event) bool {
	_, page, _, _, _ := observe.List(s.port, socket, 1)
	if len(page) == 0 || page[0].ID != id {
		return false
	}
	r := &page[0]
	if names, err := observe.Addresses(s.port, r.Handle, r.Record); err == nil {
		e.Local, e.Remote = names.Local, names.Remote
	}
	e.Key = s.key(r, e.Local, e.Remote)
	return true
}
