// Package contend has the contenders that are Go programs. Each runs in a process of its own.
//
// To add one, write its function and name it in All; the suite finds it there.
package contend

import (
	"fmt"
	"os"
	"os/signal"
	godebug "runtime/debug"
	"syscall"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
)

// A Contender runs a workload.
type Contender struct {
	Workload string
	Name     string
	Run      run
}

// A run runs a contender. A server calls ready with its address when it listens, and returns only
// if it fails.
type run = func(p Params, ready func(addr string)) (Outcome, error)

// The workloads of contenders. The workloads accept and idle use the echo servers.
const (
	Echo    = "echo"
	Core    = "core"
	Waiters = "waiters"
	Redis   = "redis"
)

// Goroutines is the Redis server that the one on package server is compared with.
const Goroutines = "goroutines"

// All lists the contenders.
func All() []Contender {
	all := []Contender{
		{Workload: Echo, Name: "std", Run: server(serveStd)},
		{Workload: Echo, Name: "netpoll", Run: server(serveNetpoll)},
		{Workload: Echo, Name: "go-epoll", Run: server(serveLoop)},
		{Workload: Core, Name: "go-epoll", Run: core(false, loopCore)},
		{Workload: Core, Name: "std", Run: core(false, stdCore)},
		{Workload: Waiters, Name: "go-epoll, 1 waiter", Run: core(false, loopCore)},
		{Workload: Redis, Name: Goroutines, Run: server(serveRedisStd)},
		{Workload: Redis, Name: "server", Run: server(serveRedis)},
	}
	for _, backend := range socknotify.Backends() {
		all = append(all, ofSocknotify(backend)...)
	}
	return all
}

// ofSocknotify lists the contenders of socknotify on one backend.
func ofSocknotify(backend string) []Contender {
	on := func(serve func(Params, string, func(string)) error) run {
		return server(func(p Params, ready func(string)) error { return serve(p, backend, ready) })
	}
	all := []Contender{
		{Workload: Echo, Run: on(servePort)},
		{Workload: Echo, Name: " server", Run: on(serveServer)},
		{Workload: Echo, Name: " overlapped", Run: on(serveOverlapped)},
	}
	edges := kernelEdges(backend)
	for _, m := range portModes {
		if m.trigger == socknotify.TriggerEdge && !edges {
			continue // without edges an edge registration of a handle is one-shot, and must be drained
		}
		run := portCore(backend, m)
		all = append(all, Contender{Workload: Core, Name: " " + m.name, Run: run})
		if m.trigger == oneShot {
			all = append(all, Contender{Workload: Waiters, Name: " " + m.name, Run: run})
		}
	}
	for i := range all {
		all[i].Name = "socknotify/" + backend + all[i].Name
	}
	return all
}

// Find returns the contender with this name.
func Find(workload, name string) (Contender, error) {
	for _, c := range All() {
		if c.Workload == workload && c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("no contender %q for %s", name, workload)
}

// server returns the Run of a server. On SIGUSR1 the process returns unused memory to the system.
func server(serve func(p Params, ready func(string)) error) run {
	return func(p Params, ready func(string)) (Outcome, error) {
		settle := make(chan os.Signal, 1)
		signal.Notify(settle, syscall.SIGUSR1)
		go func() {
			for range settle {
				godebug.FreeOSMemory()
			}
		}()
		return Outcome{}, serve(p, ready)
	}
}

// onCores calls f in a goroutine for each core, and returns the first error.
func onCores(cores int, f func(i int) error) error {
	failed := make(chan error)
	for i := range max(cores, 1) {
		go func() { failed <- f(i) }()
	}
	return <-failed
}

func kernelEdges(backend string) bool {
	p, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		return false // its contenders report the reason
	}
	defer p.Close()
	return debug.TakeSnapshot(p, 0, 0).KernelEdges
}
