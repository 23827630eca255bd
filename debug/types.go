package debug

import "time"

// Ports is what there is to be seen.
type Ports struct {
	Ports  []PortName `json:"ports"`
	Remote bool       `json:"remote"` // other machines may look too (AllowRemote)
}

// A PortName is one port of a page.
type PortName struct {
	Name    string `json:"name"`
	Backend string `json:"backend"`
	Closed  bool   `json:"closed"`
}

// Look is all that the page shows of a port, in one answer.
type Look struct {
	Status        Status        `json:"status"`
	Registrations Registrations `json:"registrations"`
	History       History       `json:"history"`
}

// Status is how a port stands.
type Status struct {
	Port        string    `json:"port"`
	Time        time.Time `json:"time"`
	Backend     string    `json:"backend"`
	KernelEdges bool      `json:"kernel_edges"`
	Closed      bool      `json:"closed"`
	Observed    time.Time `json:"observed,omitzero"` // since when notifications are counted by registration
	Counts      Counts    `json:"counts"`
	Rates       Rates     `json:"rates"`
	Spread      []Spread  `json:"spread"`
}

// Counts are a port's, as socknotify.Stats.
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
	RearmsSaved   uint64 `json:"rearms_saved"`
	Stale         uint64 `json:"stale"`
}

// Rates are per second, over the last few seconds.
type Rates struct {
	Notifications float64 `json:"notifications"`
	Accepted      float64 `json:"accepted"`
	Completions   float64 `json:"completions"`
	Removals      float64 `json:"removals"`
	Posts         float64 `json:"posts"`
	Wakeups       float64 `json:"wakeups"`
	Rearms        float64 `json:"rearms"`
	RearmsSaved   float64 `json:"rearms_saved"`
	Stale         float64 `json:"stale"`
}

// Spread is the part of a port's counts that is kept in one place.
type Spread struct {
	Inside        int64  `json:"inside"` // calls inside the port now, asleep or not
	Notifications uint64 `json:"notifications"`
	Removals      uint64 `json:"removals"`
	PostsDequeued uint64 `json:"posts_dequeued"`
	Rearms        uint64 `json:"rearms"`
	RearmsSaved   uint64 `json:"rearms_saved"`
}

// History is a port's counts, once a second for the last minutes.
type History struct {
	Port    string   `json:"port"`
	Samples []Sample `json:"samples"`
}

// A Sample is a port's counts at one time.
type Sample struct {
	Number uint64    `json:"number"` // one more than that of the sample before
	Time   time.Time `json:"time"`
	Counts
}

// Registrations is a page of a port's registrations.
type Registrations struct {
	Port    string         `json:"port"`
	Total   int            `json:"total"`
	States  map[string]int `json:"states"` // of all
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
	Gone          string    `json:"gone,omitempty"` // why there are no addresses
	Filter        string    `json:"filter"`
	Trigger       string    `json:"trigger"`
	State         string    `json:"state"`
	Pending       bool      `json:"pending,omitempty"`
	Notifications uint64    `json:"notifications"`
	Last          string    `json:"last,omitempty"` // events of the latest notification
	LastTime      time.Time `json:"last_time,omitzero"`
	Since         time.Time `json:"since,omitzero"`
}

// An Event is one thing that a port did, or how many were missed before the next.
type Event struct {
	Time   time.Time `json:"time,omitzero"`
	Kind   string    `json:"kind"` // as TraceKind, or "missed"
	Socket uint64    `json:"socket,omitempty"`
	ID     uint64    `json:"id,omitempty"`
	Key    string    `json:"key,omitempty"`
	Local  string    `json:"local,omitempty"`
	Remote string    `json:"remote,omitempty"`
	Events string    `json:"events,omitempty"`
	Data   uint64    `json:"data,omitempty"`   // of a post
	Missed uint64    `json:"missed,omitempty"` // how many
}

// A Failure is the answer to what cannot be answered.
type Failure struct {
	Error string `json:"error"`
}
