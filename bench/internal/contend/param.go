package contend

import (
	"fmt"
	"strings"
	"time"
)

// The processes of a run exchange the types below as JSON.

// Params are the parameters of a workload. Those that do not apply are zero.
type Params struct {
	Connections int
	Busy        int // connections with requests; 0 is all
	Size        int // bytes of a request
	Depth       int // requests in flight per connection; 0 is one
	Cores       int // of the contender
	Registered  int
	Active      int // of those registered
	Waiters     int
	Batch       int // notifications dequeued at a time
	Requests    int // of redis-benchmark
	Millis      int // how long to measure
}

// Load is what the load generator does.
type Load struct {
	Params
	Addr      string // of the server
	Counters  string // the file that counts answers
	Workers   int
	Rate      float64 // requests per second; 0 is as fast as answers come
	Each      int     // requests of each connection; 0 is any number
	Reconnect bool    // reset each connection after its answer, and make it again
}

// String returns the parameters that apply.
func (p Params) String() string {
	var s []string
	for _, f := range []struct {
		name  string
		value int
	}{
		{"connections", p.Connections}, {"busy", p.Busy}, {"size", p.Size}, {"depth", p.Depth},
		{"registered", p.Registered}, {"active", p.Active}, {"waiters", p.Waiters}, {"batch", p.Batch},
		{"cores", p.Cores},
	} {
		if f.value != 0 {
			s = append(s, fmt.Sprintf("%s=%d", f.name, f.value))
		}
	}
	return strings.Join(s, " ")
}

// Duration returns how long to measure.
func (p Params) Duration() time.Duration { return time.Duration(p.Millis) * time.Millisecond }

// An Outcome is the result of one sample of a contender. Fields that do not apply are zero or nil.
type Outcome struct {
	Ops     float64 `json:"ops"` // requests, events
	CPU     float64 `json:"cpu_ns"`
	Elapsed float64 `json:"elapsed_ns"`
	Base    float64 `json:"base_ns,omitempty"` // per operation, to be subtracted
	// BaseAfter is the same after the workload, or 0 if it was not measured.
	BaseAfter float64  `json:"base_after_ns,omitempty"`
	Switches  float64  `json:"switches"`
	Syscalls  *float64 `json:"syscalls,omitempty"` // per operation
	Bytes     *float64 `json:"bytes,omitempty"`    // per connection
}

// PerOp returns the CPU time of one operation, without its base.
func (o Outcome) PerOp() float64 {
	base := o.Base
	if o.BaseAfter > 0 {
		base = (base + o.BaseAfter) / 2
	}
	return o.Total() - base
}

// Total returns the CPU time of one operation, with its base.
func (o Outcome) Total() float64 { return o.CPU / o.Ops }

// Rate returns operations per second.
func (o Outcome) Rate() float64 { return o.Ops / o.Elapsed * 1e9 }
