package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/param"
)

// A Contender is a program that runs a workload.
type Contender struct {
	Name string
	// Missing is the reason if it cannot run; then the other fields are not set.
	Missing  string
	argv     func(p param.Params) []string
	fits     func(p param.Params) bool // nil: always
	observer string                    // of the workload watched
	settles  bool                      // on SIGUSR1 it returns unused memory to the system
}

// Fits reports whether it can run the workload with these parameters.
func (c *Contender) Fits(p param.Params) bool { return c.fits == nil || c.fits(p) }

// Contenders lists the contenders of a workload, the reference first.
func (e *Env) Contenders(ctx context.Context, w *Workload) []Contender {
	all := e.native(ctx, w)
	kind := w.Name
	if w.servers {
		kind = contend.Echo
	}
	for _, g := range contend.All() {
		switch {
		case g.Workload == contend.Watched && w.Name == contend.Watched:
			for _, o := range observers {
				c := e.golang(g)
				c.Name, c.observer = c.Name+" "+o.name, o.ask
				all = append(all, c)
			}
		case g.Workload == kind || g.Workload == w.Name:
			all = append(all, e.golang(g))
		}
	}
	if w.servers {
		for _, name := range slices.Sorted(maps.Keys(e.External)) {
			argv := []string{e.External[name]}
			all = append(all, Contender{Name: name, argv: func(param.Params) []string { return argv }})
		}
	}
	for _, name := range slices.Backward(w.reference) {
		if i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name && c.Missing == "" }); i >= 0 {
			ref := all[i]
			all = slices.Insert(slices.Delete(all, i, i+1), 0, ref)
		}
	}
	first := 0
	if len(w.reference) > 0 {
		first = 1
	}
	return append(all[:first], slices.DeleteFunc(all[first:], func(c Contender) bool {
		return !strings.Contains(c.Name, e.Contender)
	})...)
}

// golang returns a contender in Go, which is this program.
func (e *Env) golang(g contend.Contender) Contender {
	c := Contender{Name: g.Name, settles: true, fits: g.Fits}
	if g.Workload == contend.Idle || g.Workload == contend.Echo {
		port := g.Workload == contend.Idle
		c.fits = func(p param.Params) bool { return (p.What == portsPart) == port }
	}
	c.argv = func(p param.Params) []string {
		b, _ := json.Marshal(p) // cannot fail: numbers and a string
		return []string{e.Self, "contend", g.Workload, g.Name, string(b), strconv.Itoa(p.Millis)}
	}
	return c
}

// native lists the contenders in C.
func (e *Env) native(ctx context.Context, w *Workload) []Contender {
	servers := func(p param.Params) bool { return p.What != portsPart }
	threads := func(p param.Params) []any { return []any{p.Cores} }
	core := func(p param.Params) []any { return []any{p.Registered, p.Active, p.Millis} }
	full := func(p param.Params) []any { return append(core(p), p.Batch, p.Waiters) }
	register := func(p param.Params) []any { return []any{p.Registered, p.Millis} }
	one := func(p param.Params) []any { p.Waiters = 1; return full(p) }

	var all []Contender
	add := func(name, program string, library []string, fits func(param.Params) bool, mode string, args func(param.Params) []any) {
		c := Contender{Name: name, fits: fits}
		path, err := e.build(ctx, program, library)
		if err != nil {
			c.Missing = err.Error()
		}
		c.argv = func(p param.Params) []string {
			argv := []string{path}
			if mode != "" {
				argv = append(argv, mode)
			}
			for _, a := range args(p) {
				argv = append(argv, fmt.Sprint(a))
			}
			return argv
		}
		all = append(all, c)
	}
	modes := []string{"level", "edge", "oneshot"}
	event, uv := []string{"event"}, []string{"uv"}
	switch {
	case w.servers:
		for _, mode := range modes {
			add("c-epoll "+mode, "epoll_echo", nil, servers, mode, threads)
		}
		add("libevent", "libevent", event, servers, "echo", threads)
		add("libuv", "libuv", uv, servers, "echo", threads)
	case w.Name == "core":
		for _, mode := range modes {
			add("c-epoll "+mode, "epoll_core", nil, nil, mode, full)
		}
		add("libevent", "libevent", event, nil, "core", core)
		add("libuv", "libuv", uv, nil, "core", core)
	case w.Name == "waiters":
		// Of threads that share a level-triggered descriptor all would be woken for one socket, so this is one thread.
		add(oneC, "epoll_core", nil, nil, "level", one)
		add("c-epoll edge", "epoll_core", nil, nil, "edge", full)
		add("c-epoll oneshot", "epoll_core", nil, nil, "oneshot", full)
	case w.Name == "register":
		add("c-epoll", "epoll_register", nil, nil, "", register)
		add("libevent", "libevent", event, nil, "register", register)
		add("libuv", "libuv", uv, nil, "register", register)
	case w.Name == "wake":
		args := func(p param.Params) []any { return []any{p.What, p.Millis} }
		add("c eventfd", "wake", nil, nil, "eventfd", args)
		add("c condition variable", "wake", nil, nil, "cond", args)
	case w.Name == "udp":
		none := func(param.Params) []any { return nil }
		add("c-epoll", "epoll_udp", nil, nil, "single", none)
		add("c-epoll batch", "epoll_udp", nil, nil, "batch", none)
	}
	return all
}
