// Package suite has the workloads, and runs their contenders one after the other.
package suite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/bench/internal/contend"
)

// A Set is a set of parameters to run a workload with.
type Set struct {
	Params contend.Params
	// Share is the part of the rounds that this set has.
	Share float64
}

// A Workload is one kind of work that is measured.
type Workload struct {
	Name        string
	Doc         string
	sets, quick []Set // of a run, and of a quick one
	// reference has the candidates for the reference: it is the first that can run.
	reference []string
	sample    sampler
	// servers reports whether the contenders are the echo servers.
	servers bool
}

// Shares of less important sets: three of nine rounds, and one.
const (
	side = 1. / 3
	once = 1. / 9
)

// Sets returns the sets to run it with.
func (w *Workload) Sets(quick bool) []Set {
	if quick {
		return w.quick
	}
	return w.sets
}

// The names of the reference, and of its replacement without a C compiler.
const (
	cLevel = "c-epoll level"
	goLoop = "go-epoll"
	// One waiter, for any number of waiters of the others.
	oneC  = "c-epoll level, 1 waiter"
	oneGo = "go-epoll, 1 waiter"
)

var toC = []string{cLevel, goLoop}

// Workloads returns all workloads.
func Workloads() []*Workload {
	small := contend.Params{Connections: 100, Size: 64}
	deep := contend.Params{Connections: 100, Size: 64, Depth: 16}
	again := contend.Params{Connections: 32, Size: 64}
	return []*Workload{
		{Name: "echo", Doc: "TCP echo over connections that stay", reference: toC, servers: true,
			sample: serve(contend.Load{}), sets: echoSets(),
			quick: []Set{serverSet(small, 1, 1), serverSet(deep, 1, 1)}},
		{Name: "core", Doc: "the event core: sockets that hand a byte on, without the cost of the byte",
			reference: toC, sample: own,
			sets: []Set{
				coreSet(100, 100, 1), coreSet(1000, 100, 1), coreSet(9000, 100, 1),
				coreSet(1000, 2, side), coreSet(1000, 1000, side),
			},
			quick: []Set{coreSet(1000, 100, 1)}},
		{Name: "waiters", Doc: "many waiters on one port or epoll descriptor", reference: []string{oneC, oneGo},
			sample: own,
			sets:   []Set{waiterSet(1, 1), waiterSet(2, side), waiterSet(4, side), waiterSet(16, 1)},
			quick:  []Set{waiterSet(1, 1), waiterSet(16, 1)}},
		{Name: "accept", Doc: "a connection, a request, a reset, and again", reference: toC, servers: true,
			sample: serve(contend.Load{Reconnect: true}),
			sets:   []Set{serverSet(again, 1, 1), serverSet(again, 2, side)},
			quick:  []Set{serverSet(again, 1, 1)}},
		{Name: "idle", Doc: "memory of idle connections", servers: true, sample: onServer(idle),
			sets:  []Set{serverSet(contend.Params{Connections: 9000, Size: 64}, 1, once)},
			quick: []Set{serverSet(contend.Params{Connections: 1000, Size: 64}, 1, 1)}},
		{Name: contend.Redis, Doc: "redis-benchmark's GET", reference: []string{contend.Goroutines},
			sample: onServer(redisBenchmark), sets: redisSets(1), quick: redisSets(100)},
	}
}

func echoSets() []Set {
	var sets []Set
	for _, conns := range []int{100, 1000, 9000} {
		for _, size := range []int{64, 1024} {
			for _, cores := range []int{1, 2} {
				share := side
				if size == 64 && cores == 1 && conns < 9000 {
					share = 1
				}
				sets = append(sets, serverSet(contend.Params{Connections: conns, Size: size}, cores, share))
			}
		}
	}
	return append(sets,
		serverSet(contend.Params{Connections: 100, Size: 64, Depth: 16}, 1, side),
		serverSet(contend.Params{Connections: 1000, Busy: 8, Size: 64}, 1, side))
}

// redisSets are the sets of the workload redis. A sample takes one or two seconds.
func redisSets(divisor int) []Set {
	var sets []Set
	for _, s := range []struct{ clients, pipelined, cores, requests int }{
		{50, 1, 2, 150_000}, {500, 1, 2, 150_000}, {50, 16, 2, 1_200_000}, {1, 1, 2, 40_000},
		{50, 1, 1, 120_000},
	} {
		p := contend.Params{Connections: s.clients, Depth: s.pipelined, Cores: s.cores}
		p.Requests = s.requests / divisor
		sets = append(sets, Set{p, 1})
	}
	return sets
}

func serverSet(p contend.Params, cores int, share float64) Set {
	p.Cores = cores
	return Set{p, share}
}

func coreSet(registered, active int, share float64) Set {
	return Set{contend.Params{Registered: registered, Active: active, Batch: 256, Waiters: 1, Cores: 1}, share}
}

func waiterSet(waiters int, share float64) Set {
	return Set{contend.Params{Registered: 128, Active: 128, Batch: 8, Waiters: waiters, Cores: 2}, share}
}

// Choose returns the workloads with these names, in the order of Workloads, or all if there are no
// names.
func Choose(names []string) ([]*Workload, error) {
	all := Workloads()
	var known []string
	for _, w := range all {
		known = append(known, w.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("no workload %q: there are %s", n, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(all, func(w *Workload) bool {
		return len(names) > 0 && !slices.Contains(names, w.Name)
	}), nil
}
