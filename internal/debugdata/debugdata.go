// Package debugdata has what package debug serves as JSON, and the command reads.
package debugdata

import "time"

// Ports lists the ports of a page.
type Ports struct {
	Ports  []PortName `json:"ports"`
	Remote bool       `json:"remote"` // requests from other machines are served too (AllowRemote)
}

// A PortName is one port of a page.
type PortName struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	Closed  bool   `json:"closed"`
}

// View is everything that the page shows of a port.
type View struct {
	Status        Status        `json:"status"`
	Registrations Registrations `json:"registrations"`
	History       History       `json:"history"`
	Process       Process       `json:"process"`
}

// Status is the current status of a port.
type Status struct {
	Port        string    `json:"port"`
	Time        time.Time `json:"time"`
	Backend     string    `json:"backend"`
	KernelEdges bool      `json:"kernel_edges"`
	Closed      bool      `json:"closed"`
	Observed    time.Time `json:"observed,omitzero"` // the time since which notifications are counted per registration
	Counts      Counts    `json:"counts"`
	Rates       Rates     `json:"rates"`
	Spread      []Spread  `json:"spread"`
}

// Counts holds the counters of a port, as in socknotify.Stats.
type Counts struct {
	Registrations int64  `json:"registrations"`
	Notifications uint64 `json:"notifications"`
	Accepted      uint64 `json:"accepted"`
	Completions   uint64 `json:"completions"`
	Removals      uint64 `json:"removals"`
	Posts         uint64 `json:"posts"`
	PostsDequeued uint64 `json:"posts_dequeued"`
	Queued        int64  `json:"queued"`
	Waiting       int    `json:"waiting"`
	Wakeups       uint64 `json:"wakeups"`
	Rearms        uint64 `json:"rearms"`
	FastEnables   uint64 `json:"fast_enables"`
	Stale         uint64 `json:"stale"`
}

// Rates holds rates per second over the last few seconds.
type Rates struct {
	Notifications float64 `json:"notifications"`
	Accepted      float64 `json:"accepted"`
	Completions   float64 `json:"completions"`
	Removals      float64 `json:"removals"`
	Posts         float64 `json:"posts"`
	Wakeups       float64 `json:"wakeups"`
	Rearms        float64 `json:"rearms"`
	FastEnables   float64 `json:"fast_enables"`
	Stale         float64 `json:"stale"`
}

// Spread holds the counters of one stripe of a port.
type Spread struct {
	Inside        int64  `json:"inside"` // calls in the port now, blocked or not
	Notifications uint64 `json:"notifications"`
	Removals      uint64 `json:"removals"`
	PostsDequeued uint64 `json:"posts_dequeued"`
	Rearms        uint64 `json:"rearms"`
	FastEnables   uint64 `json:"fast_enables"`
}

// History holds a port's counters of the last minutes, one sample per second.
type History struct {
	Port    string   `json:"port"`
	Samples []Sample `json:"samples"`
}

// A Sample holds a port's counters at one time.
type Sample struct {
	Number uint64    `json:"number"` // increases by one with each sample
	Time   time.Time `json:"time"`
	Counts
}

// Registrations is a page of a port's registrations.
type Registrations struct {
	Port    string         `json:"port"`
	Total   int            `json:"total"`
	States  map[string]int `json:"states"` // number of registrations by state, without the filter
	Matched int            `json:"matched"`
	Offset  int            `json:"offset"`
	Rows    []Row          `json:"rows"`
}

// A Row is one registration.
type Row struct {
	ID            uint64    `json:"id"`
	Socket        uint64    `json:"socket"`
	Key           string    `json:"key"`
	Network       string    `json:"network,omitempty"`
	Local         string    `json:"local,omitempty"`
	Remote        string    `json:"remote,omitempty"`
	Gone          string    `json:"gone,omitempty"` // the reason that there are no addresses
	Filter        string    `json:"filter"`
	Trigger       string    `json:"trigger"`
	State         string    `json:"state"`
	Pending       bool      `json:"pending,omitempty"`
	Notifications uint64    `json:"notifications"`
	Last          string    `json:"last,omitempty"` // events of the latest notification
	LastTime      time.Time `json:"last_time,omitzero"`
	Since         time.Time `json:"since,omitzero"`
}

// An Event describes one action of a port, or the number of events that were missed before the next.
type Event struct {
	Time   time.Time `json:"time,omitzero"`
	Kind   string    `json:"kind"` // as TraceKind, or "missed"
	Socket uint64    `json:"socket,omitempty"`
	ID     uint64    `json:"id,omitempty"`
	Key    string    `json:"key,omitempty"`
	Local  string    `json:"local,omitempty"`
	Remote string    `json:"remote,omitempty"`
	Events string    `json:"events,omitempty"`
	Data   uint64    `json:"data,omitempty"`   // data of a post
	Missed uint64    `json:"missed,omitempty"` // number of missed events
}

// TraceKinds are the names of the kinds of actions, in the order of debug.TraceKind.
var TraceKinds = []string{
	"notified", "accepted", "registered", "removed", "lost", "posted", "completed"}

// Servers lists the servers and lots of a page.
type Servers struct {
	Servers []ServerName `json:"servers"`
	Remote  bool         `json:"remote"` // as in Ports
	Bounds  []float64    `json:"bounds"` // the upper bounds of all buckets of Times except the last, in seconds
}

// A ServerName is one server or lot of a page.
type ServerName struct {
	Name  string   `json:"name"`
	Kind  string   `json:"kind"`  // its type, such as server.Server
	Ports []string `json:"ports"` // the names of its ports
}

// A ServerView is what the page shows of a server or a lot.
type ServerView struct {
	Server   string         `json:"server"`
	Kind     string         `json:"kind"`
	Time     time.Time      `json:"time"`
	Observed time.Time      `json:"observed"` // since when there are samples
	Counts   ServerCounts   `json:"counts"`
	Samples  []ServerSample `json:"samples"`
	Process  Process        `json:"process"`
}

// A Process is what the page shows of the process.
type Process struct {
	Time     time.Time       `json:"time"`
	Observed time.Time       `json:"observed"` // since when there are samples
	Counts   ProcessCounts   `json:"counts"`
	Samples  []ProcessSample `json:"samples"`
}

// ProcessCounts holds what Go's runtime counts. All but Goroutines and Collections are bytes.
type ProcessCounts struct {
	Goroutines  uint64 `json:"goroutines"`
	Memory      uint64 `json:"memory"`  // taken from the system, and not given back
	Objects     uint64 `json:"objects"` // of the heap, with those that were not collected yet
	Stacks      uint64 `json:"stacks"`
	Collections uint64 `json:"collections"`
}

// A ProcessSample holds the counters of the process at one time.
type ProcessSample struct {
	Number uint64    `json:"number"` // increases by one with each sample
	Time   time.Time `json:"time"`
	ProcessCounts
}

// A ServerSample holds the counters of a server or a lot at one time.
type ServerSample struct {
	Number uint64    `json:"number"` // increases by one with each sample
	Time   time.Time `json:"time"`
	ServerCounts
}

// ServerCounts holds the counters of a server or a lot, as in server.Stats and park.Stats. Counters that its kind does not have are 0.
type ServerCounts struct {
	Conns       int     `json:"conns,omitempty"`
	Handshaking int     `json:"handshaking,omitempty"`
	Hijacked    int     `json:"hijacked,omitempty"`
	Parked      int     `json:"parked,omitempty"` // without Waiting
	Waiting     int     `json:"waiting,omitempty"`
	Running     int     `json:"running,omitempty"`
	Workers     int     `json:"workers,omitempty"`
	QueuedBytes int64   `json:"queued_bytes,omitempty"`
	Longest     float64 `json:"longest,omitempty"` // seconds

	Accepted       uint64 `json:"accepted,omitempty"`
	Refused        uint64 `json:"refused,omitempty"`
	RefusedPerAddr uint64 `json:"refused_per_addr,omitempty"`
	RefusedWrites  uint64 `json:"refused_writes,omitempty"`
	BytesIn        uint64 `json:"bytes_in,omitempty"`
	BytesOut       uint64 `json:"bytes_out,omitempty"`
	Calls          uint64 `json:"calls,omitempty"`     // of Data or Handler, or requests
	CallTime       *Times `json:"call_time,omitempty"` // nil if nothing was measured

	Idle    uint64 `json:"idle,omitempty"`
	Slow    uint64 `json:"slow,omitempty"`
	Stalled uint64 `json:"stalled,omitempty"`
	Panics  uint64 `json:"panics,omitempty"`
	Stuck   uint64 `json:"stuck,omitempty"`

	Handshakes        uint64 `json:"handshakes,omitempty"`
	FailedHandshakes  uint64 `json:"failed_handshakes,omitempty"`
	LateHandshakes    uint64 `json:"late_handshakes,omitempty"`
	Dropped           uint64 `json:"dropped,omitempty"`        // writes of streams that were refused
	CryptoTLS         uint64 `json:"crypto_tls,omitempty"`     // connections that crypto/tls keeps
	UnparkedHTTP2     uint64 `json:"unparked_http2,omitempty"` // connections that net/http serves
	EvictedHandshakes uint64 `json:"evicted_handshakes,omitempty"`
	BadPreambles      uint64 `json:"bad_preambles,omitempty"`

	Parks      uint64 `json:"parks,omitempty"`
	AtOnce     uint64 `json:"at_once,omitempty"`
	Unparkable uint64 `json:"unparkable,omitempty"`
	Rejected   uint64 `json:"rejected,omitempty"`

	// Waits of requests (park.Suspend).
	Suspended       int     `json:"suspended,omitempty"`
	Blocked         int     `json:"blocked,omitempty"` // the part of Suspended with a goroutine
	SuspendedBytes  int64   `json:"suspended_bytes,omitempty"`
	LongestWait     float64 `json:"longest_wait,omitempty"` // seconds
	Resumed         uint64  `json:"resumed,omitempty"`
	WaitTimeouts    uint64  `json:"wait_timeouts,omitempty"`
	ClientsGone     uint64  `json:"clients_gone,omitempty"`
	WaitsClosed     uint64  `json:"waits_closed,omitempty"`
	RefusedSuspends uint64  `json:"refused_suspends,omitempty"`
	WaitTime        *Times  `json:"wait_time,omitempty"` // of those that have ended
	Copied          uint64  `json:"copied,omitempty"`    // by a proxy itself; tunnels move BytesIn there, and BytesOut back
}

// Times is a histogram of durations.
type Times struct {
	Seconds float64  `json:"seconds"` // the sum
	Buckets []uint64 `json:"buckets"` // as in metrics.Histogram
}

// A Failure is the answer to a request that failed.
type Failure struct {
	Error string `json:"error"`
}
