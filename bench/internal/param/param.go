// Package param has the types that the processes of a run exchange: the parameters of a workload, and the outcome of
// one sample.
package param

import (
	"fmt"
	"strings"
	"time"
)

// Params are the parameters of a workload. Those that do not apply are zero.
type Params struct {
	Connections int `json:"connections,omitempty"`
	Busy        int `json:"busy,omitempty"`  // connections with requests; 0 is all
	Size        int `json:"size,omitempty"`  // bytes of a request
	Depth       int `json:"depth,omitempty"` // requests in flight per connection
	Cores       int `json:"cores,omitempty"` // of the contender
	Registered  int `json:"registered,omitempty"`
	Active      int `json:"active,omitempty"` // of those registered
	Waiters     int `json:"waiters,omitempty"`
	Batch       int `json:"batch,omitempty"` // notifications dequeued at a time
	Requests    int `json:"-"`               // of redis-benchmark
	Millis      int `json:"-"`               // how long to measure
}

// String returns the parameters that apply.
func (p Params) String() string {
	var s []string
	add := func(name string, v int) {
		if v != 0 {
			s = append(s, fmt.Sprintf("%s=%d", name, v))
		}
	}
	add("connections", p.Connections)
	add("busy", p.Busy)
	add("size", p.Size)
	add("depth", p.Depth)
	add("registered", p.Registered)
	add("active", p.Active)
	add("waiters", p.Waiters)
	add("batch", p.Batch)
	add("cores", p.Cores)
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
