package debug

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

// A Failure is the answer to a request that failed.
type Failure struct {
	Error string `json:"error"`
}
