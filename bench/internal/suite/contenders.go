package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/socknotify/socknotify/bench/internal/contend"
)

// A Contender is a program that runs a workload.
type Contender struct {
	Name string
	// Missing is the reason if it cannot run; then the other fields are not set.
	Missing string
	argv    func(p contend.Params) []string
	settles bool // on SIGUSR1 it returns unused memory to the system
}

// Contenders lists the contenders of a workload, the reference first.
func (e *Env) Contenders(ctx context.Context, w *Workload) []Contender {
	all := e.native(ctx, w)
	kind := w.Name
	if w.servers {
		kind = contend.Echo
	}
	for _, g := range contend.All() {
		if g.Workload == kind {
			all = append(all, e.golang(g))
		}
	}
	if w.servers {
		for _, name := range slices.Sorted(maps.Keys(e.External)) {
			argv := []string{e.External[name]}
			all = append(all, Contender{Name: name, argv: func(contend.Params) []string { return argv }})
		}
	}
	if _, err := exec.LookPath(redisProgram); err != nil && w.Name == contend.Redis {
		for i := range all {
			all[i].Missing = redisProgram + " of Debian's redis-tools is not installed"
		}
	}
	for _, name := range slices.Backward(w.reference) {
		if i := slices.IndexFunc(all, func(c Contender) bool { return c.Name == name && c.Missing == "" }); i >= 0 {
			ref := all[i]
			all = slices.Insert(slices.Delete(all, i, i+1), 0, ref)
		}
	}
	first := min(len(w.reference), 1)
	return append(all[:first], slices.DeleteFunc(all[first:], func(c Contender) bool {
		return !strings.Contains(c.Name, e.Contender)
	})...)
}

// golang returns a contender in Go, which is this program.
func (e *Env) golang(g contend.Contender) Contender {
	c := Contender{Name: g.Name, settles: true}
	c.argv = func(p contend.Params) []string {
		b, _ := json.Marshal(p) // cannot fail: numbers
		return []string{e.Self, "contend", g.Workload, g.Name, string(b)}
	}
	return c
}

// native lists the contenders in C.
func (e *Env) native(ctx context.Context, w *Workload) []Contender {
	threads := func(p contend.Params) []any { return []any{p.Cores} }
	core := func(p contend.Params) []any { return []any{p.Registered, p.Active, p.Millis} }
	full := func(p contend.Params) []any { return append(core(p), p.Batch, p.Waiters) }
	one := func(p contend.Params) []any { p.Waiters = 1; return full(p) }

	var all []Contender
	type arguments = func(contend.Params) []any
	add := func(name, program, mode string, args arguments, libraries ...string) {
		c := Contender{Name: name}
		path, err := e.builder.build(ctx, program, libraries...)
		if err != nil {
			c.Missing = err.Error()
		}
		c.argv = func(p contend.Params) []string {
			argv := []string{path, mode}
			for _, a := range args(p) {
				argv = append(argv, fmt.Sprint(a))
			}
			return argv
		}
		all = append(all, c)
	}
	// Of threads that share a level-triggered descriptor all would be woken for one socket, so that is
	// one thread where there are several waiters.
	epoll := func(level, program string, levelArgs, args arguments) {
		add(level, program, "level", levelArgs)
		add("c-epoll edge", program, "edge", args)
		add("c-epoll oneshot", program, "oneshot", args)
	}
	libraries := func(mode string, args arguments) {
		add("libevent", "libevent", mode, args, "event")
		add("libuv", "libuv", mode, args, "uv")
	}
	switch {
	case w.servers:
		epoll(cLevel, "epoll_echo", threads, threads)
		libraries("echo", threads)
	case w.Name == contend.Core:
		epoll(cLevel, "epoll_core", full, full)
		libraries("core", core)
	case w.Name == contend.Waiters:
		epoll(oneC, "epoll_core", one, full)
	}
	return all
}
