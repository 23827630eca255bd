package debug

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/debugdata"
	"github.com/socknotify/socknotify/internal/kernel/observe"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// A service is a server or a lot that a page shows.
type service struct {
	title, kind string
	// read sets the counts, which are 0 before the first Serve.
	read func(*debugdata.ServerCounts)
	// ports returns the ports that the service has now, each as the same any as before.
	ports func() []any
	// newSource makes the source of such a port.
	newSource func(title string, port any) *source
}

func (s *service) name() string { return s.title }

// A shown is a service on one page.
type shown struct {
	*service
	history ring[debugdata.ServerSample]
}

// Server shows a server under a name, which must be unique among servers and lots on the page. Its ports are shown too,
// from the first Serve on. Server.TimeCalls makes the page show how long calls take. Server must not be called from OnStart.
func Server[S any](name string, s *server.Server[S]) Option {
	read := func(c *debugdata.ServerCounts) { setServer(c, s.Stats()) }
	return add(name, "server.Server", s.Ports, read)
}

// Lot shows a lot of package park under a name, as Server does.
func Lot(name string, l *park.Lot) Option {
	return addLots(name, "park.Lot", func() []*park.Lot { return []*park.Lot{l} }, l.Stats)
}

// ParkServer shows a server of package park under a name, as Server does.
func ParkServer(name string, s *park.Server) Option {
	return addLots(name, "park.Server", s.Lots, s.Stats)
}

// HTTPServer shows an HTTP server of package park under a name, as Server does.
func HTTPServer(name string, s *park.HTTPServer) Option {
	return addLots(name, "park.HTTPServer", s.Lots, s.Stats)
}

// Tunnels shows tunnels of package park under a name, as Server does.
func Tunnels(name string, t *tunnel.Tunnels) Option {
	return addLots(name, "tunnel.Tunnels", t.Lots, t.Stats)
}

func addLots(name, kind string, lots func() []*park.Lot, stats func() park.Stats) Option {
	ports := func() (all []*socknotify.Port[park.Key]) {
		for _, l := range lots() {
			all = append(all, l.Port())
		}
		return all
	}
	return add(name, kind, ports, func(c *debugdata.ServerCounts) { setPark(c, stats()) })
}

// add shows a service with ports that have keys of type K.
func add[K comparable](
	name, kind string, ports func() []*socknotify.Port[K], read func(*debugdata.ServerCounts),
) Option {
	s := &service{
		title: name, kind: kind, read: read,
		ports: func() (all []any) {
			for _, p := range ports() {
				all = append(all, p)
			}
			return all
		},
		newSource: func(title string, port any) *source {
			return newSource(title, port.(*socknotify.Port[K]), nil)
		},
	}
	return func(h *Handler) { h.services = append(h.services, &shown{service: s}) }
}

func setServer(c *debugdata.ServerCounts, s server.Stats) {
	*c = debugdata.ServerCounts{
		Conns: s.Conns, Handshaking: s.Handshaking, Hijacked: s.Hijacked, Workers: s.Workers, Running: s.Running,
		Waiting: s.Waiting, QueuedBytes: s.QueuedBytes, Longest: s.Longest.Seconds(), Accepted: s.Accepted, Refused: s.Refused, RefusedPerAddr: s.RefusedPerAddr,
		RefusedWrites: s.Overloads, BytesIn: s.BytesIn, BytesOut: s.BytesOut, Calls: s.Calls, CallTime: timesOf(s.CallTime),
		Idle: s.TimedOut.Idle, Slow: s.TimedOut.Slow, Stalled: s.TimedOut.Message,
		Panics: s.Panics, Stuck: s.Stuck, Handshakes: s.Handshakes,
		FailedHandshakes: s.Rejected - min(s.RejectedHeaders, s.Rejected) +
			s.TimedOut.Handshake + s.EvictedHandshakes,
		LateHandshakes: s.TimedOut.Handshake, EvictedHandshakes: s.EvictedHandshakes,
		CryptoTLS:    s.CryptoTLS,
		BadPreambles: s.RejectedHeaders,
	}
}

// setPark sets Idle to the larger of two counts: a Server also closes connections that it could not park, and a lot ends
// parkings without closing their connections.
func setPark(c *debugdata.ServerCounts, s park.Stats) {
	*c = debugdata.ServerCounts{
		Conns: s.Conns, Parked: s.Parked - s.Waiting, Waiting: s.Waiting, Running: s.Running, Workers: s.Workers,
		Accepted: s.Accepted, Refused: s.Refused, RefusedPerAddr: s.RefusedPerAddr, Rejected: s.Rejected,
		Calls: s.Calls, CallTime: timesOf(s.CallTime), Panics: s.Panics,
		Idle: max(s.Expired, s.TimedOut.Idle), Slow: s.TimedOut.Slow, Stalled: s.TimedOut.Message, LateHandshakes: s.TimedOut.Handshake,
		Handshakes: s.Handshakes, CryptoTLS: s.CryptoTLS, UnparkedHTTP2: s.UnparkedHTTP2, QueuedBytes: s.QueuedBytes, Dropped: s.Dropped,
		Parks: s.Parks, AtOnce: s.AtOnce, Unparkable: s.Unparkable,
		Suspended: s.Suspended, Blocked: s.Blocked, SuspendedBytes: s.SuspendedBytes,
		LongestWait: s.LongestWait.Seconds(), WaitTime: timesOf(s.WaitTime),
		Resumed: s.Resumed, WaitTimeouts: s.WaitTimeouts, ClientsGone: s.ClientsGone,
		WaitsClosed: s.WaitsClosed, RefusedSuspends: s.RefusedSuspends,
		BytesIn: s.BytesForth, BytesOut: s.BytesBack, Copied: s.Copied,
	}
}

// timesOf returns nil if nothing was measured.
func timesOf(h metrics.Histogram) *debugdata.Times {
	if h.Count() == 0 {
		return nil
	}
	return &debugdata.Times{Seconds: h.Sum.Seconds(), Buckets: h.Buckets[:]}
}

// sample adds a sample.
func (s *shown) sample() {
	one := debugdata.ServerSample{Time: time.Now()}
	s.read(&one.ServerCounts)
	s.history.add(func(number uint64) debugdata.ServerSample {
		one.Number = number
		return one
	})
}

// A mounted is a port of the page, with the service that it belongs to and its identity there, or nil.
type mounted struct {
	*source
	history ring[debugdata.Sample]
	stop    func() // stops observing the port
	of      *shown
	port    any
}

// begin begins to observe the port, and takes the first sample.
func (m *mounted) begin() {
	m.stop = observe.Start(m.source.port)
	m.sample()
}

// adopt adds the ports that services have opened, and drops those that they have no more. The caller holds h.mu.
func (h *Handler) adopt() {
	if h.ctx.Err() != nil {
		return
	}
	for _, s := range h.services {
		now := s.ports()
		h.mounts = slices.DeleteFunc(h.mounts, func(m *mounted) bool {
			gone := m.of == s && !slices.Contains(now, m.port)
			if gone {
				m.stop()
			}
			return gone
		})
		for i, p := range now {
			if slices.ContainsFunc(h.mounts, func(m *mounted) bool { return m.of == s && m.port == p }) {
				continue
			}
			name := s.title
			if len(now) > 1 {
				name = fmt.Sprintf("%s-%d", s.title, i)
			}
			for h.isMounted(name) {
				name += "'"
			}
			m := &mounted{source: s.newSource(name, p), of: s, port: p}
			m.begin()
			h.mounts = append(h.mounts, m)
		}
	}
}

// isMounted reports whether a port has a name. The caller holds h.mu.
func (h *Handler) isMounted(name string) bool {
	return slices.ContainsFunc(h.mounts, func(m *mounted) bool { return m.title == name })
}

// ports returns the ports of the page.
func (h *Handler) ports() []*mounted {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.adopt()
	return slices.Clone(h.mounts)
}

func (h *Handler) serverNames(*http.Request) (any, error) {
	ports := h.ports()
	out := debugdata.Servers{Servers: []debugdata.ServerName{}, Remote: h.guard.remote, Bounds: []float64{}}
	for _, b := range metrics.Bounds() {
		out.Bounds = append(out.Bounds, b.Seconds())
	}
	for _, s := range h.services {
		name := debugdata.ServerName{Name: s.title, Kind: s.kind, Ports: []string{}}
		for _, m := range ports {
			if m.of == s {
				name.Ports = append(name.Ports, m.title)
			}
		}
		out.Servers = append(out.Servers, name)
	}
	return out, nil
}

func (h *Handler) serverView(r *http.Request) (any, error) {
	from, err := parseAfter(r, "after")
	if err != nil {
		return nil, err
	}
	s, err := named(r, "server", h.services)
	if err != nil {
		return nil, err
	}
	v := debugdata.ServerView{Server: s.title, Kind: s.kind, Time: time.Now(), Observed: h.began,
		Samples: s.history.after(from)}
	s.read(&v.Counts)
	v.Process, err = h.processView(r, "process")
	return v, err
}

// Ready returns a handler for a readiness check, such as /readyz for Kubernetes. It answers 200 while all servers are
// ready, and 503 otherwise: a server is ready while it accepts connections, and no more from when its Shutdown or Close
// begins. A *server.Server, a *park.Server and a *park.HTTPServer are servers in this sense. The answers say nothing else,
// so the handler serves any client. It should be served by another server, because one that shuts down answers nothing.
func Ready(servers ...interface{ Ready() bool }) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		for _, s := range servers {
			if !s.Ready() {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, "not ready")
				return
			}
		}
		fmt.Fprintln(w, "ready")
	})
}
