// Package metric lists the metrics of ports, servers and lots, for the packages that export them.
package metric

import (
	"slices"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/metrics"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

// A Metric is one number of the counts S.
type Metric[S any] struct {
	Name    string // words joined by underscores, and parts by dots
	Unit    string // the thing counted, in the singular, or Bytes or Seconds
	Help    string
	Counter bool // the value only increases; otherwise it is a current number
	Value   func(*S) int64
	// Several metrics with one name differ by a label. Their sum is the number of all. Label is empty where there is one
	// metric of the name.
	Label, LabelValue string
}

// Units that are not things counted. The value of Seconds is in nanoseconds.
const (
	Bytes   = "By"
	Seconds = "s"
)

// A Histogram is a histogram of the counts S, in seconds.
type Histogram[S any] struct {
	Name, Help string
	Value      func(*S) metrics.Histogram
}

// A Set has the metrics of the counts S.
type Set[S any] struct {
	Metrics    []Metric[S]
	Histograms []Histogram[S]
}

type (
	portStats = socknotify.Stats
	srvStats  = server.Stats
	lotStats  = park.Stats
)

// Port returns the metrics of a port.
func Port() Set[socknotify.Stats] {
	return Set[portStats]{Metrics: []Metric[portStats]{
		gauge("registrations", "registration", "Present registrations, including those of closed sockets that the port has not noticed, and sockets with operations.",
			func(s *portStats) int64 { return s.Registrations }),
		gauge("queued_entries", "entry", "Posts, removals and completions that wait to be dequeued.", func(s *portStats) int64 { return s.Queued }),
		gauge("waiting_calls", "call", "Calls that wait in the port.", func(s *portStats) int { return s.Waiting }),
		counter("notifications", "notification", "Socket notifications dequeued, without removals.", func(s *portStats) uint64 { return s.Notifications }),
		counter("accepted_connections", "connection", "Connections delivered by Accept, which are notifications too.", func(s *portStats) uint64 { return s.Accepted }),
		counter("completions", "completion", "Completions of overlapped operations, which are notifications too.", func(s *portStats) uint64 { return s.Completions }),
		counter("removals", "removal", "Removal notifications dequeued.", func(s *portStats) uint64 { return s.Removals }),
		counter("posts", "post", "Completions posted.", func(s *portStats) uint64 { return s.Posts }),
		counter("posts_dequeued", "post", "Posted completions dequeued.", func(s *portStats) uint64 { return s.PostsDequeued }),
		counter("wakeups", "wakeup", "Waiting calls woken.", func(s *portStats) uint64 { return s.Wakeups }),
		counter("rearms", "enable", "Enables of existing registrations that made a system call.", func(s *portStats) uint64 { return s.Rearms }),
		counter("fast_enables", "enable", "Enables of existing registrations without a system call.", func(s *portStats) uint64 { return s.FastEnables }),
		counter("stale_reports", "report", "Reports dropped because their registration had ended or changed.", func(s *portStats) uint64 { return s.Stale }),
	}}
}

// Server returns the metrics of a server.Server.
func Server() Set[server.Stats] {
	const (
		conns    = "Connections by state. Open ones are past their TLS handshake, and the server reads and writes them."
		workers  = "Worker goroutines by state. Most of the running ones are in the call of a handler."
		refused  = "Connections closed when they were accepted, by limit."
		moved    = "Bytes received and sent, with TLS the encrypted ones, without those of hijacked connections."
		timeouts = "Connections closed because of a timeout, by timeout."
		failed   = "Connections that ended before their TLS handshake was complete, by cause. Timeouts are also those of headers."
	)
	return Set[srvStats]{
		Metrics: []Metric[srvStats]{
			gauge("server.connections", "connection", conns, func(s *srvStats) int { return max(s.Conns-s.Handshaking-s.Hijacked, 0) }).by("state", "open"),
			gauge("server.connections", "connection", conns, func(s *srvStats) int { return s.Handshaking }).by("state", "handshaking"),
			gauge("server.connections", "connection", conns, func(s *srvStats) int { return s.Hijacked }).by("state", "hijacked"),
			gauge("server.workers", "worker", workers, func(s *srvStats) int { return s.Running }).by("state", "running"),
			gauge("server.workers", "worker", workers, func(s *srvStats) int { return max(s.Workers-s.Running, 0) }).by("state", "waiting"),
			gauge("server.waiting_notifications", "notification", "Notifications that wait for the present call of their worker.",
				func(s *srvStats) int { return s.Waiting }),
			gauge("server.queued", Bytes, "Bytes written and not yet taken by the system.", func(s *srvStats) int64 { return s.QueuedBytes }),
			gauge("server.longest_call", Seconds, "Age of the oldest call of a handler that is running.", func(s *srvStats) time.Duration { return s.Longest }),
			counter("server.accepted_connections", "connection", "Connections accepted, without refused ones.", func(s *srvStats) uint64 { return s.Accepted }),
			counter("server.refused_connections", "connection", refused, func(s *srvStats) uint64 { return s.Refused - min(s.RefusedPerAddr, s.Refused) }).by("limit", "connections"),
			counter("server.refused_connections", "connection", refused, func(s *srvStats) uint64 { return s.RefusedPerAddr }).by("limit", "connections_per_address"),
			counter("server.refused_writes", "write", "Writes refused because of the limit of queued bytes.", func(s *srvStats) uint64 { return s.Overloads }),
			counter("server.io", Bytes, moved, func(s *srvStats) uint64 { return s.BytesIn }).by("direction", "receive"),
			counter("server.io", Bytes, moved, func(s *srvStats) uint64 { return s.BytesOut }).by("direction", "transmit"),
			counter("server.calls", "call", "Calls of the handler's Data that have ended.", func(s *srvStats) uint64 { return s.Calls }),
			counter("server.timeouts", "connection", timeouts, func(s *srvStats) uint64 { return s.TimedOut.Idle }).by("kind", "idle"),
			counter("server.timeouts", "connection", timeouts, func(s *srvStats) uint64 { return s.TimedOut.Slow }).by("kind", "write"),
			counter("server.timeouts", "connection", timeouts, func(s *srvStats) uint64 { return s.TimedOut.Message }).by("kind", "message"),
			counter("server.timeouts", "connection", timeouts, func(s *srvStats) uint64 { return s.TimedOut.Handshake }).by("kind", "handshake"),
			counter("server.handshakes", "handshake", "TLS handshakes completed.", func(s *srvStats) uint64 { return s.Handshakes }),
			counter("server.crypto_tls_connections", "connection", keptTLS, func(s *srvStats) uint64 { return s.CryptoTLS }),
			counter("server.failed_handshakes", "handshake", failed, func(s *srvStats) uint64 { return s.TimedOut.Handshake }).by("cause", "timeout"),
			counter("server.failed_handshakes", "handshake", failed, func(s *srvStats) uint64 { return s.EvictedHandshakes }).by("cause", "evicted"),
			counter("server.failed_handshakes", "handshake", failed, func(s *srvStats) uint64 {
				return s.Rejected - min(s.RejectedHeaders, s.Rejected)
			}).by("cause", "error"),
			counter("server.panics", "panic", "Panics of handlers and of functions of the TLS configuration.", func(s *srvStats) uint64 { return s.Panics }),
			counter("server.stuck_calls", "call", "Calls of a handler that ran for StuckAfter.", func(s *srvStats) uint64 { return s.Stuck }),
			counter("server.bad_preambles", "connection", "Connections that ended before their header was accepted, without timeouts.", func(s *srvStats) uint64 { return s.RejectedHeaders }),
		},
		Histograms: []Histogram[srvStats]{
			{"server.call.duration", "Time that calls of the handler's Data take, of a server that measures it.", func(s *srvStats) metrics.Histogram { return s.CallTime }},
		},
	}
}

// Lot returns the metrics of a park.Lot.
func Lot() Set[park.Stats] {
	const (
		conns   = "Connections by state. Parked ones wait for their peer, queued ones for a worker, and those of running ones a function has."
		workers = "Goroutines that run functions or wait for work."
	)
	return Set[lotStats]{
		Metrics: []Metric[lotStats]{
			gauge("park.connections", "connection", conns, func(s *lotStats) int { return max(s.Parked-s.Waiting, 0) }).by("state", "parked"),
			gauge("park.connections", "connection", conns, func(s *lotStats) int { return s.Waiting }).by("state", "queued"),
			gauge("park.connections", "connection", conns, func(s *lotStats) int { return s.Running }).by("state", "running"),
			gauge("park.workers", "worker", workers, func(s *lotStats) int { return s.Workers }),
			counter("park.parks", "park", "Connections parked, each time.", func(s *lotStats) uint64 { return s.Parks }),
			counter("park.immediate_parks", "park", "Parks whose function ran at once because bytes were buffered.", func(s *lotStats) uint64 { return s.AtOnce }),
			counter("park.timeouts", "connection", "Parked connections whose idle timeout expired.", func(s *lotStats) uint64 { return s.Expired }),
			counter("park.unparkable_connections", "connection", "Connections that could not be parked, each time.", func(s *lotStats) uint64 { return s.Unparkable }),
			counter("park.panics", "panic", "Panics of functions of the program and of methods of connections.", func(s *lotStats) uint64 { return s.Panics }),
		},
		Histograms: []Histogram[lotStats]{
			{"park.call.duration", "Time that functions, calls of a handler or requests take, of a lot or server that measures it.", func(s *lotStats) metrics.Histogram { return s.CallTime }},
		},
	}
}

// ParkServer returns the metrics of a park.Server.
func ParkServer() Set[park.Stats] {
	const (
		refused  = "Connections closed because of a limit, by limit."
		timeouts = "Connections closed because of a timeout, by timeout."
	)
	s := Lot()
	s.Metrics = append(s.Metrics,
		openConns, acceptedConns,
		counter("park.refused_connections", "connection", refused, func(s *lotStats) uint64 {
			return s.Refused - min(s.RefusedPerAddr, s.Refused)
		}).by("limit", "connections"),
		counter("park.refused_connections", "connection", refused,
			func(s *lotStats) uint64 { return s.RefusedPerAddr }).by("limit", "connections_per_address"),
		counter("park.calls", "call", "Calls of Handler.", func(s *lotStats) uint64 { return s.Calls }),
		counter("park.handshakes", "handshake", "TLS handshakes completed.",
			func(s *lotStats) uint64 { return s.Handshakes }),
		counter("park.failed_handshakes", "handshake", "TLS handshakes that failed or took too long.",
			func(s *lotStats) uint64 { return s.Rejected + s.TimedOut.Handshake }),
		cryptoTLS)
	timeout := func(kind string, value func(*lotStats) uint64) {
		s.Metrics = append(s.Metrics,
			counter("park.closing_timeouts", "connection", timeouts, value).by("kind", kind))
	}
	timeout("idle", func(s *lotStats) uint64 { return s.TimedOut.Idle })
	timeout("write", func(s *lotStats) uint64 { return s.TimedOut.Slow })
	timeout("message", func(s *lotStats) uint64 { return s.TimedOut.Message })
	timeout("handshake", func(s *lotStats) uint64 { return s.TimedOut.Handshake })
	return s
}

// Tunnels returns the metrics of tunnel.Tunnels. Those that a park.Server has too are the same.
func Tunnels() Set[park.Stats] {
	const moved = "Bytes that tunnels have moved, to their second connections and back."
	s := Set[lotStats]{}
	shared := []string{"park.connections", "park.workers", "park.parks", "park.immediate_parks",
		"park.timeouts", "park.unparkable_connections", "park.panics", "park.open_connections",
		"park.accepted_connections", "park.failed_handshakes", "park.closing_timeouts"}
	for _, m := range ParkServer().Metrics {
		if slices.Contains(shared, m.Name) && m.LabelValue != "message" ||
			m.Name == "park.refused_connections" && m.LabelValue == "connections" {
			s.Metrics = append(s.Metrics, m)
		}
	}
	s.Metrics = append(s.Metrics,
		counter("park.tunnel.io", Bytes, moved,
			func(s *lotStats) uint64 { return s.BytesForth }).by("direction", "forth"),
		counter("park.tunnel.io", Bytes, moved,
			func(s *lotStats) uint64 { return s.BytesBack }).by("direction", "back"),
		gauge("park.tunnel.queued", Bytes,
			"Bytes that one side of a tunnel has received and the other has not taken.",
			func(s *lotStats) int64 { return s.QueuedBytes }),
		counter("park.copied_connections", "connection",
			"Upgraded connections that were left to the proxy's own copying.",
			func(s *lotStats) uint64 { return s.Copied }))
	return s
}

// HTTPServer returns the metrics of a park.HTTPServer.
func HTTPServer() Set[park.Stats] {
	const (
		waiting = "Requests that wait after park.Suspend, without a goroutine or with one."
		ended   = "Requests that no longer wait, by what has ended their wait."
	)
	s := Lot()
	s.Metrics = append(s.Metrics,
		openConns, acceptedConns,
		counter("park.requests", "request", "Requests that a handler was called for.",
			func(s *lotStats) uint64 { return s.Calls }),
		counter("park.rejected_requests", "request",
			"Malformed requests, and those with too many header bytes, for which no handler was called.",
			func(s *lotStats) uint64 { return s.Rejected }),
		cryptoTLS,
		counter("park.unparked_http2_connections", "connection",
			"Connections of HTTP/2 left to net/http, which does not park them.",
			func(s *lotStats) uint64 { return s.UnparkedHTTP2 }),
		gauge("park.suspended_requests", "request", waiting,
			func(s *lotStats) int { return s.Suspended - s.Blocked }).by("goroutine", "no"),
		gauge("park.suspended_requests", "request", waiting,
			func(s *lotStats) int { return s.Blocked }).by("goroutine", "yes"),
		gauge("park.suspended", Bytes, "Bytes of the heads and bodies of requests that wait.",
			func(s *lotStats) int64 { return s.SuspendedBytes }),
		gauge("park.longest_wait", Seconds, "Time that the oldest request has waited that still waits.",
			func(s *lotStats) time.Duration { return s.LongestWait }))
	by := func(cause string, of func(*lotStats) uint64) {
		s.Metrics = append(s.Metrics, counter("park.ended_waits", "request", ended, of).by("cause", cause))
	}
	by("resume", func(s *lotStats) uint64 { return s.Resumed })
	by("timeout", func(s *lotStats) uint64 { return s.WaitTimeouts })
	by("client", func(s *lotStats) uint64 { return s.ClientsGone })
	by("server", func(s *lotStats) uint64 { return s.WaitsClosed })
	s.Metrics = append(s.Metrics, counter("park.refused_suspends", "request",
		"Requests that were not let wait because of a limit.",
		func(s *lotStats) uint64 { return s.RefusedSuspends }))
	s.Histograms = append(s.Histograms, Histogram[lotStats]{"park.wait.duration",
		"Time that requests have waited after park.Suspend.",
		func(s *lotStats) metrics.Histogram { return s.WaitTime }})
	return s
}

const keptTLS = "TLS connections that crypto/tls keeps after the handshake, which takes more memory."

var (
	openConns = gauge("park.open_connections", "connection", "Connections that are open, in any state.",
		func(s *lotStats) int { return s.Conns })
	acceptedConns = counter("park.accepted_connections", "connection", "Connections accepted.",
		func(s *lotStats) uint64 { return s.Accepted })
)

var cryptoTLS = counter("park.crypto_tls_connections", "connection", keptTLS,
	func(s *lotStats) uint64 { return s.CryptoTLS })

// gauge returns a metric that is a current number.
func gauge[S any, N int | int64 | uint64 | time.Duration](name, unit, help string,
	value func(*S) N) Metric[S] {
	return Metric[S]{Name: name, Unit: unit, Help: help,
		Value: func(s *S) int64 { return int64(value(s)) }}
}

// counter returns a metric that only increases.
func counter[S any](name, unit, help string, value func(*S) uint64) Metric[S] {
	m := gauge(name, unit, help, value)
	m.Counter = true
	return m
}

// by returns the metric with a label.
func (m Metric[S]) by(label, value string) Metric[S] {
	m.Label, m.LabelValue = label, value
	return m
}
