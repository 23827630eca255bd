package suite

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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
	type arguments = func(contend.Params) string
	threads := func(p contend.Params) string { return fmt.Sprint(p.Cores) }
	core := func(p contend.Params) string { return fmt.Sprint(p.Registered, p.Active, p.Millis) }
	full := func(p contend.Params) string { return fmt.Sprint(core(p), " ", p.Batch, p.Waiters) }
	one := func(p contend.Params) string { p.Waiters = 1; return full(p) }

	var all []Contender
	add := func(name, program, mode string, args arguments, libraries ...string) {
		c := Contender{Name: name}
		path, err := e.builder.build(ctx, program, libraries...)
		if err != nil {
			c.Missing = err.Error()
		}
		c.argv = func(p contend.Params) []string {
			return append([]string{path, mode}, strings.Fields(args(p))...)
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

// A builder compiles the contenders that are C programs in the folder of their sources, with $CC or cc.
type builder struct {
	cc  string // empty: none
	dir string
}

// newBuilder copies the sources into a folder and returns a builder.
func newBuilder(sources fs.FS, dir string) (*builder, error) {
	cc, _ := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	return &builder{cc, dir}, os.CopyFS(dir, sources)
}

var errNoCompiler = errors.New("no C compiler")

// build compiles the program of this name with libraries, if it was not compiled before, and
// returns its path. The error is the first one of the compiler, in one line.
func (b *builder) build(ctx context.Context, name string, libraries ...string) (string, error) {
	path := filepath.Join(b.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if b.cc == "" {
		return "", errNoCompiler
	}
	args := []string{"-O2", "-pthread", "-o", name, name + ".c"}
	for _, l := range libraries {
		args = append(args, "-l"+l)
	}
	cmd := exec.CommandContext(ctx, b.cc, args...)
	cmd.Dir = b.dir
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w", firstError(string(said)), err)
	}
	return path, nil
}

// firstError returns the first error message in the output of a compiler.
func firstError(said string) string {
	for line := range strings.Lines(said) {
		for _, sign := range []string{"error: ", "cannot find "} {
			if at := strings.Index(line, sign); at >= 0 {
				return strings.TrimSpace(strings.TrimPrefix(line[at:], "error: "))
			}
		}
	}
	first, _, _ := strings.Cut(said, "\n")
	return first
}

// facts returns the name and version of the compiler.
func (b *builder) facts(ctx context.Context) string {
	if b.cc == "" {
		return errNoCompiler.Error()
	}
	said, _ := exec.CommandContext(ctx, b.cc, "--version").Output()
	first, _, _ := strings.Cut(string(said), "\n")
	return cmp.Or(first, b.cc)
}
