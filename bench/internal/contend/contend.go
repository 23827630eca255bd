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

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/overlapped"
)

// A Contender does a workload.
type Contender struct {
	Workload string
	Name     string
	// Run does it. A server says its address when it listens, and does not return unless it fails.
	Run func(p param.Params, ready func(addr string)) (param.Outcome, error)
	// Fits, if not nil, tells whether it can do the workload with these parameters.
	Fits func(p param.Params) bool
}

// The workloads that contenders know. The workloads accept and idle are done by echo servers.
const (
	Echo     = "echo"
	Core     = "core"
	Wake     = "wake"
	Post     = "post"
	Waiters  = "waiters"
	Register = "register"
	Idle     = "idle" // the port's part
	UDP      = "udp"
	Watched  = "watched"
)

// Socknotify starts the name of each contender that is socknotify; the kernel follows.
const Socknotify = "socknotify/"

// All lists the contenders.
func All() []Contender {
	all := []Contender{
		{Workload: Echo, Name: "std", Run: server(serveStd)},
		{Workload: Echo, Name: "netpoll", Run: server(serveNetpoll)},
		{Workload: Echo, Name: "go-epoll", Run: server(serveLoop)},
		{Workload: Core, Name: "go-epoll", Run: loopCore},
		{Workload: Core, Name: "std", Run: stdCore},
		{Workload: Waiters, Name: "go-epoll, 1 waiter", Run: loopCore},
		{Workload: Register, Name: "go-epoll", Run: loopRegister},
		{Workload: Wake, Name: "go channel", Run: wake(newChannelBell), Fits: twoCores},
		{Workload: Wake, Name: "go sync.Cond", Run: wake(newCondBell), Fits: twoCores},
		{Workload: Wake, Name: "std socket", Run: wake(newConnBell), Fits: twoCores},
		{Workload: Post, Name: "go channel", Run: channelPost},
		{Workload: UDP, Name: "std", Run: server(serveUDPStd)},
		{Workload: UDP, Name: "std x/net batch", Run: server(serveUDPBatchStd)},
	}
	for _, backend := range socknotify.Backends() {
		all = append(all, ofSocknotify(backend)...)
	}
	all = append(all, Contender{Workload: Echo, Name: Socknotify + "epoll overlapped, ring",
		Run: server(func(p param.Params, ready func(string)) error {
			return serveOverlapped(p, ready, socknotify.WithBackend("epoll"), overlapped.WithRing())
		})})
	return all
}

// ofSocknotify lists socknotify's contenders on one kernel.
func ofSocknotify(backend string) []Contender {
	all := []Contender{
		{Workload: Echo, Run: server(func(p param.Params, ready func(string)) error { return servePort(p, backend, ready) })},
		{Workload: Echo, Name: " server", Run: server(func(p param.Params, ready func(string)) error { return serveServer(p, backend, ready) })},
		{Workload: Echo, Name: " overlapped", Run: server(func(p param.Params, ready func(string)) error {
			return serveOverlapped(p, ready, socknotify.WithBackend(backend))
		})},
		{Workload: Watched, Run: server(func(p param.Params, ready func(string)) error { return serveWatched(p, backend, ready) })},
		{Workload: Post, Run: portPost(backend)},
		{Workload: Wake, Name: " post", Run: wake(newPostBell(backend)), Fits: twoCores},
		{Workload: Wake, Name: " socket", Run: wake(newSocketBell(backend)), Fits: twoCores},
		{Workload: Register, Run: portRegister(backend)},
		{Workload: Idle, Run: portIdle(backend)},
		{Workload: UDP, Run: server(func(_ param.Params, ready func(string)) error { return serveUDP(backend, false, ready) })},
		{Workload: UDP, Name: " batch", Run: server(func(_ param.Params, ready func(string)) error { return serveUDP(backend, true, ready) })},
	}
	edges := kernelEdges(backend)
	for _, m := range portModes {
		if m.edge && !edges {
			continue // an edge registration of a handle is then a one-shot one, and must be drained
		}
		run := portCore(backend, m)
		all = append(all, Contender{Workload: Core, Name: " " + m.name, Run: run})
		if m.oneShot {
			all = append(all, Contender{Workload: Waiters, Name: " " + m.name, Run: run})
		}
	}
	for i := range all {
		all[i].Name = Socknotify + backend + all[i].Name
	}
	return all
}

func twoCores(p param.Params) bool { return p.Cores >= 2 }

// Find is the contender of this name.
func Find(workload, name string) (Contender, error) {
	for _, c := range All() {
		if c.Workload == workload && c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("no contender %q for %s", name, workload)
}

// server makes a contender of a server. On SIGUSR1 it gives back the memory that it does not need.
func server(serve func(p param.Params, ready func(string)) error) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, ready func(string)) (param.Outcome, error) {
		settle := make(chan os.Signal, 1)
		signal.Notify(settle, syscall.SIGUSR1)
		go func() {
			for range settle {
				godebug.FreeOSMemory()
			}
		}()
		return param.Outcome{}, serve(p, ready)
	}
}

func kernelEdges(backend string) bool {
	p, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		return false // its contenders say why
	}
	defer p.Close()
	return debug.TakeSnapshot(p, 0, 0).KernelEdges
}
