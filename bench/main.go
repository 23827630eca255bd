//go:build linux

// Command bench measures socknotify beside the standard library, other event loops and C, one
// workload after the other, and prints each sample as a line of a Go benchmark, for benchstat.
//
//	go run . | tee bench.txt     all workloads
//	go run . echo core           some
//	go run . -quick              one short round of fewer parameters
package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/load"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/proc"
	"github.com/socknotify/socknotify/bench/internal/suite"
)

//go:embed c
var sources embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run runs a command, or the workloads that args name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	commands := map[string]func(context.Context, []string, io.Writer) error{
		"contend": contender, "load": generate,
	}
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:], stdout)
	}
	o, names, err := options(args, stdout, stderr)
	if err != nil {
		return err
	}
	workloads, err := suite.Choose(names)
	if err != nil {
		return err
	}
	e, err := suite.NewEnv(o)
	if err != nil {
		return err
	}
	defer e.Close()
	e.Facts(ctx)
	var failed error
	for _, w := range workloads {
		if failed = errors.Join(failed, e.Run(ctx, w)); ctx.Err() != nil {
			break
		}
	}
	return failed
}

// options parses the flags of a run.
func options(args []string, stdout, stderr io.Writer) (o suite.Options, names []string, err error) {
	o = suite.Options{Out: stdout, Warnings: stderr, External: map[string]string{}}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprintln(stderr, "usage: bench [flags] [workload...]\n\nWorkloads:")
		for _, w := range suite.Workloads() {
			fmt.Fprintf(stderr, "  %-9s %s\n", w.Name, w.Doc)
		}
		f.PrintDefaults()
	}
	f.BoolVar(&o.Quick, "quick", false, "one short round with fewer parameters; its figures mean nothing")
	f.IntVar(&o.Rounds, "rounds", 0, "samples of each contender in the main sets of parameters (default 9)")
	f.DurationVar(&o.Window, "window", 0, "time that a sample measures (default 150ms)")
	f.StringVar(&o.Only, "only", "", "only parameters that contain this, such as \"connections=100 \"")
	f.StringVar(&o.Contender, "contender", "",
		"beside the reference, only contenders whose names contain this, such as \"epoll server\"")
	f.Func("external", "a further echo server, as `name=program`: it listens on 127.0.0.1, "+
		"prints \"ready HOST:PORT\" and serves on GOMAXPROCS processors", func(s string) error {
		name, path, _ := strings.Cut(s, "=")
		_, err := os.Stat(path)
		o.External[name] = path
		return err
	})
	for rest := args; len(rest) > 0; { // flags may follow names
		if err := f.Parse(rest); err != nil {
			return o, nil, err
		}
		if rest = f.Args(); len(rest) > 0 {
			names, rest = append(names, rest[0]), rest[1:]
		}
	}
	rounds, window, warm := 9, 150*time.Millisecond, 80*time.Millisecond
	if o.Quick {
		rounds, window, warm = 1, 50*time.Millisecond, 30*time.Millisecond
	}
	o.Rounds, o.Window, o.Warm = cmp.Or(o.Rounds, rounds), cmp.Or(o.Window, window), warm
	if o.Rounds < 1 || o.Window < time.Millisecond {
		return o, nil, errors.New("-rounds must be at least 1, and -window at least 1ms")
	}
	if o.Sources, err = fs.Sub(sources, "c"); err != nil {
		return o, nil, err
	}
	o.Self, err = os.Executable()
	return o, names, err
}

// The commands below are started by a run.

// contender runs a contender: contend WORKLOAD NAME PARAMETERS.
func contender(_ context.Context, args []string, stdout io.Writer) error {
	signal.Reset() // signals end servers
	if len(args) != 3 {
		return errors.New("contend workload name parameters")
	}
	c, err := contend.Find(args[0], args[1])
	if err != nil {
		return err
	}
	var p contend.Params
	if err := json.Unmarshal([]byte(args[2]), &p); err != nil {
		return fmt.Errorf("parameters %q: %w", args[2], err)
	}
	o, err := c.Run(p, func(addr string) { fmt.Fprintln(stdout, "ready", addr) })
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(o)
}

// generate is the load generator: load PARAMETERS. It prints a line when its connections are made,
// and runs until it is ended.
func generate(ctx context.Context, args []string, stdout io.Writer) error {
	var l contend.Load
	if err := json.Unmarshal([]byte(strings.Join(args, " ")), &l); err != nil {
		return fmt.Errorf("load %q: %w", args, err)
	}
	if l.Workers > proc.MaxCounters {
		return fmt.Errorf("%d workers: at most %d", l.Workers, proc.MaxCounters)
	}
	c, err := proc.OpenCounters(l.Counters)
	if err != nil {
		return err
	}
	_, err = load.Run(ctx, load.Config{
		Addr: l.Addr, Connections: l.Connections, Active: l.Busy, Size: l.Size, Depth: max(l.Depth, 1),
		Workers: l.Workers, Rate: l.Rate, Requests: l.Each, Reconnect: l.Reconnect,
		Duration: load.MaxTime, Timeout: time.Minute, Drain: time.Millisecond, Strict: true, Reset: true,
		Connected: func() { fmt.Fprintln(stdout, "ready") }, Answered: c.Of,
	}, nil)
	return err
}
