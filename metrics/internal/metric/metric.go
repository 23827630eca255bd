// Package metric lists the metrics of ports, servers and lots, for the packages that export them.
package metric

import (
	"slices"

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
	gauge := func(name, unit, help string, value func(*portStats) int64) Metric[portStats] {
		return Metric[portStats]{Name: name, Unit: unit, Help: help, Value: value}
	}
	counter := func(name, unit, help string, value func(*portStats) uint64) Metric[portStats] {
		return Metric[portStats]{Name: name, Unit: unit, Help: help, Counter: true, Value: unsigned(value)}
	}
	return Set[portStats]{Metrics: []Metric[portStats]{
		gauge("registrations", "registration", "Present registrations, including those of closed sockets that the port has not noticed, and sockets with operations.",
			func(s *portStats) int64 { return s.Registrations }),
		gauge("queued_entries", "entry", "Posts, removals and completions that wait to be dequeued.", func(s *portStats) int64 { return s.Queued }),
		gauge("waiting_calls", "call", "Calls that wait in the port.", func(s *portStats) int64 { return int64(s.Waiting) }),
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
	gauge := func(name, unit, help, label, labelValue string, value func(*srvStats) int64) Metric[srvStats] {
		return Metric[srvStats]{name, unit, help, false, value, label, labelValue}
	}
	counter := func(name, unit, help, label, labelValue string, value func(*srvStats) uint64) Metric[srvStats] {
		return Metric[srvStats]{name, unit, help, true, unsigned(value), label, labelValue}
	}
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
			gauge("server.connections", "connection", conns, "state", "open", func(s *srvStats) int64 { return int64(max(s.Conns-s.Handshaking-s.Hijacked, 0)) }),
			gauge("server.connections", "connection", conns, "state", "handshaking", func(s *srvStats) int64 { return int64(s.Handshaking) }),
			gauge("server.connections", "connection", conns, "state", "hijacked", func(s *srvStats) int64 { return int64(s.Hijacked) }),
			gauge("server.workers", "worker", workers, "state", "running", func(s *srvStats) int64 { return int64(s.Running) }),
			gauge("server.workers", "worker", workers, "state", "waiting", func(s *srvStats) int64 { return int64(max(s.Workers-s.Running, 0)) }),
			gauge("server.waiting_notifications", "notification", "Notifications that wait for the present call of their worker.",
				"", "", func(s *srvStats) int64 { return int64(s.Waiting) }),
			gauge("server.queued", Bytes, "Bytes written and not yet taken by the system.", "", "", func(s *srvStats) int64 { return s.QueuedBytes }),
			gauge("server.longest_call", Seconds, "Age of the oldest call of a handler that is running.", "", "", func(s *srvStats) int64 { return int64(s.Longest) }),
			counter("server.accepted_connections", "connection", "Connections accepted, without refused ones.", "", "", func(s *srvStats) uint64 { return s.Accepted }),
			counter("server.refused_connections", "connection", refused, "limit", "connections", func(s *srvStats) uint64 { return s.Refused - min(s.RefusedPerAddr, s.Refused) }),
			counter("server.refused_connections", "connection", refused, "limit", "connections_per_address", func(s *srvStats) uint64 { return s.RefusedPerAddr }),
			counter("server.refused_writes", "write", "Writes refused because of the limit of queued bytes.", "", "", func(s *srvStats) uint64 { return s.Overloads }),
			counter("server.io", Bytes, moved, "direction", "receive", func(s *srvStats) uint64 { return s.BytesIn }),
			counter("server.io", Bytes, moved, "direction", "transmit", func(s *srvStats) uint64 { return s.BytesOut }),
			counter("server.calls", "call", "Calls of the handler's Data that have ended.", "", "", func(s *srvStats) uint64 { return s.Calls }),
			counter("server.timeouts", "connection", timeouts, "kind", "idle", func(s *srvStats) uint64 { return s.TimedOut.Idle }),
			counter("server.timeouts", "connection", timeouts, "kind", "write", func(s *srvStats) uint64 { return s.TimedOut.Slow }),
			counter("server.timeouts", "connection", timeouts, "kind", "message", func(s *srvStats) uint64 { return s.TimedOut.Message }),
			counter("server.timeouts", "connection", timeouts, "kind", "handshake", func(s *srvStats) uint64 { return s.TimedOut.Handshake }),
			counter("server.handshakes", "handshake", "TLS handshakes completed.", "", "", func(s *srvStats) uint64 { return s.Handshakes }),
			counter("server.crypto_tls_connections", "connection", keptTLS, "", "",
				func(s *srvStats) uint64 { return s.CryptoTLS }),
			counter("server.failed_handshakes", "handshake", failed, "cause", "timeout", func(s *srvStats) uint64 { return s.TimedOut.Handshake }),
			counter("server.failed_handshakes", "handshake", failed, "cause", "evicted", func(s *srvStats) uint64 { return s.EvictedHandshakes }),
			counter("server.failed_handshakes", "handshake", failed, "cause", "error", func(s *srvStats) uint64 {
				return s.Rejected - min(s.RejectedHeaders, s.Rejected)
			}),
			counter("server.panics", "panic", "Panics of handlers and of functions of the TLS configuration.", "", "", func(s *srvStats) uint64 { return s.Panics }),
			counter("server.stuck_calls", "call", "Calls of a handler that ran for StuckAfter.", "", "", func(s *srvStats) uint64 { return s.Stuck }),
			counter("server.bad_preambles", "connection", "Connections that ended before their header was accepted, without timeouts.", "", "", func(s *srvStats) uint64 { return s.RejectedHeaders }),
		},
		Histograms: []Histogram[srvStats]{
			{"server.call.duration", "Time that calls of the handler's Data take, of a server that measures it.", func(s *srvStats) metrics.Histogram { return s.CallTime }},
		},
	}
}

// Lot returns the metrics of a park.Lot.
func Lot() Set[park.Stats] {
	gauge := func(name, unit, help, label, labelValue string, value func(*lotStats) int) Metric[lotStats] {
		return Metric[lotStats]{name, unit, help, false, func(s *lotStats) int64 { return int64(value(s)) }, label, labelValue}
	}
	counter := func(name, unit, help string, value func(*lotStats) uint64) Metric[lotStats] {
		return Metric[lotStats]{Name: name, Unit: unit, Help: help, Counter: true, Value: unsigned(value)}
	}
	const (
		conns   = "Connections by state. Parked ones wait for their peer, queued ones for a worker, and those of running ones a function has."
		workers = "Goroutines that run functions or wait for work."
	)
	return Set[lotStats]{
		Metrics: []Metric[lotStats]{
			gauge("park.connections", "connection", conns, "state", "parked", func(s *lotStats) int { return max(s.Parked-s.Waiting, 0) }),
			gauge("park.connections", "connection", conns, "state", "queued", func(s *lotStats) int { return s.Waiting }),
			gauge("park.connections", "connection", conns, "state", "running", func(s *lotStats) int { return s.Running }),
			gauge("park.workers", "worker", workers, "", "", func(s *lotStats) int { return s.Workers }),
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
	s := Lot()
	counter := func(name, unit, help, label, labelValue string, value func(*lotStats) uint64) {
		s.Metrics = append(s.Metrics, Metric[lotStats]{name, unit, help, true, unsigned(value), label, labelValue})
	}
	const (
		refused  = "Connections closed because of a limit, by limit."
		timeouts = "Connections closed because of a timeout, by timeout."
	)
	s.Metrics = append(s.Metrics, Metric[lotStats]{Name: "park.open_connections", Unit: "connection",
		Help: "Connections that are open, in any state.", Value: func(s *lotStats) int64 { return int64(s.Conns) }})
	counter("park.accepted_connections", "connection", "Connections accepted.", "", "",
		func(s *lotStats) uint64 { return s.Accepted })
	counter("park.refused_connections", "connection", refused, "limit", "connections",
		func(s *lotStats) uint64 { return s.Refused - min(s.RefusedPerAddr, s.Refused) })
	counter("park.refused_connections", "connection", refused, "limit", "connections_per_address",
		func(s *lotStats) uint64 { return s.RefusedPerAddr })
	counter("park.calls", "call", "Calls of Handler.", "", "", func(s *lotStats) uint64 { return s.Calls })
	counter("park.handshakes", "handshake", "TLS handshakes completed.", "", "",
		func(s *lotStats) uint64 { return s.Handshakes })
	counter("park.failed_handshakes", "handshake", "TLS handshakes that failed or took too long.", "", "",
		func(s *lotStats) uint64 { return s.Rejected + s.TimedOut.Handshake })
	s.Metrics = append(s.Metrics, cryptoTLS)
	timeout := func(kind string, value func(*metrics.TimedOut) uint64) {
		counter("park.closing_timeouts", "connection", timeouts, "kind", kind,
			func(s *lotStats) uint64 { return value(&s.TimedOut) })
	}
	timeout("idle", func(t *metrics.TimedOut) uint64 { return t.Idle })
	timeout("write", func(t *metrics.TimedOut) uint64 { return t.Slow })
	timeout("message", func(t *metrics.TimedOut) uint64 { return t.Message })
	timeout("handshake", func(t *metrics.TimedOut) uint64 { return t.Handshake })
	return s
}

// Tunnels returns the metrics of park.Tunnels. Those that a park.Server has too are the same.
func Tunnels() Set[park.Stats] {
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
	moved := func(direction string, value func(*lotStats) uint64) {
		s.Metrics = append(s.Metrics, Metric[lotStats]{Name: "park.tunnel.io", Unit: Bytes, Counter: true,
			Help:  "Bytes that tunnels have moved, to their second connections and back.",
			Label: "direction", LabelValue: direction, Value: unsigned(value)})
	}
	moved("forth", func(s *lotStats) uint64 { return s.BytesForth })
	moved("back", func(s *lotStats) uint64 { return s.BytesBack })
	s.Metrics = append(s.Metrics,
		Metric[lotStats]{Name: "park.tunnel.queued", Unit: Bytes,
			Help:  "Bytes that one side of a tunnel has received and the other has not taken.",
			Value: func(s *lotStats) int64 { return s.QueuedBytes }},
		Metric[lotStats]{Name: "park.copied_connections", Unit: "connection", Counter: true,
			Help:  "Upgraded connections that were left to the proxy's own copying.",
			Value: func(s *lotStats) int64 { return int64(s.Copied) }})
	return s
}

// HTTPServer returns the metrics of a park.HTTPServer.
func HTTPServer() Set[park.Stats] {
	s := Lot()
	s.Metrics = append(s.Metrics,
		Metric[lotStats]{Name: "park.requests", Unit: "request", Help: "Requests that a handler was called for.",
			Counter: true, Value: func(s *lotStats) int64 { return int64(s.Calls) }},
		Metric[lotStats]{Name: "park.rejected_requests", Unit: "request",
			Help:    "Malformed requests, and those with too many header bytes, for which no handler was called.",
			Counter: true, Value: func(s *lotStats) int64 { return int64(s.Rejected) }},
		cryptoTLS)
	addWaits(&s)
	return s
}

// addWaits adds the metrics of waiting requests.
func addWaits(s *Set[lotStats]) {
	add := func(name, unit, help string, counter bool, label, value string, of func(*lotStats) int64) {
		s.Metrics = append(s.Metrics, Metric[lotStats]{name, unit, help, counter, of, label, value})
	}
	const (
		waiting = "Requests that wait after park.Suspend, without a goroutine or with one."
		ended   = "Requests that no longer wait, by what has ended their wait."
	)
	add("park.suspended_requests", "request", waiting, false, "goroutine", "no",
		func(s *lotStats) int64 { return int64(s.Suspended - s.Blocked) })
	add("park.suspended_requests", "request", waiting, false, "goroutine", "yes",
		func(s *lotStats) int64 { return int64(s.Blocked) })
	add("park.suspended", Bytes, "Bytes of the heads and bodies of requests that wait.", false, "", "",
		func(s *lotStats) int64 { return s.SuspendedBytes })
	add("park.longest_wait", Seconds, "Time that the oldest request has waited that still waits.",
		false, "", "", func(s *lotStats) int64 { return int64(s.LongestWait) })
	by := func(cause string, of func(*lotStats) uint64) {
		add("park.ended_waits", "request", ended, true, "cause", cause, unsigned(of))
	}
	by("resume", func(s *lotStats) uint64 { return s.Resumed })
	by("timeout", func(s *lotStats) uint64 { return s.WaitTimeouts })
	by("client", func(s *lotStats) uint64 { return s.ClientsGone })
	by("server", func(s *lotStats) uint64 { return s.WaitsClosed })
	add("park.refused_suspends", "request", "Requests that were not let wait because of a limit.",
		true, "", "", unsigned(func(s *lotStats) uint64 { return s.RefusedSuspends }))
	s.Histograms = append(s.Histograms, Histogram[lotStats]{"park.wait.duration",
		"Time that requests have waited after park.Suspend.",
		func(s *lotStats) metrics.Histogram { return s.WaitTime }})
}

const keptTLS = "TLS connections that crypto/tls keeps after the handshake, which takes more memory."

var cryptoTLS = Metric[lotStats]{Name: "park.crypto_tls_connections", Unit: "connection",
	Help:    keptTLS,
	Counter: true, Value: func(s *lotStats) int64 { return int64(s.CryptoTLS) }}

func unsigned[S any](value func(*S) uint64) func(*S) int64 {
	return func(s *S) int64 { return int64(value(s)) }
}
