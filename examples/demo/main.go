// Command demo runs three examples over loopback sockets. It verifies that every byte arrives and that every
// registration receives exactly one EventRemove.
//
//	go run ./examples/demo                          all three
//	go run ./examples/demo tcp                      one of them: poll, udp or tcp
//	go run ./examples/demo -backend poll -json      on another backend; one JSON object
//
// The exit status is 0 if every scenario passed, 1 if one failed, and 2 for wrong usage.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/multithreaded"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// config holds the flags.
type config struct {
	backend  string
	clients  int
	messages int
	workers  int
	timeout  time.Duration
	json     bool
}

// Upper bounds, so that a typing error does not exhaust the machine.
const (
	maxClients  = 20_000
	maxMessages = 10_000_000
	maxWorkers  = 10_000
)

// report is the JSON object.
type report struct {
	Backend   string    `json:"backend"`
	Scenarios []outcome `json:"scenarios"`
}

// An outcome is the result of one scenario.
type outcome struct {
	Name             string  `json:"name"`
	OK               bool    `json:"ok"`
	Error            string  `json:"error,omitempty"`
	Workers          int     `json:"workers"`
	Clients          int     `json:"clients"`
	Notifications    int     `json:"notifications"`
	Bytes            int64   `json:"bytes"`
	ExpectedBytes    int64   `json:"expected_bytes"`
	Removals         int     `json:"removals"`
	ExpectedRemovals int     `json:"expected_removals"`
	ElapsedMS        float64 `json:"elapsed_ms"`
	PerWorker        []int   `json:"per_worker"`
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cfg config
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.backend, "backend", "", "backend to run on: one of "+strings.Join(socknotify.Backends(), ", ")+
		" (default $"+socknotify.BackendEnv+", or the first)")
	flags.IntVar(&cfg.clients, "clients", multithreaded.DefaultClients, "clients of tcp; poll and udp have one")
	flags.IntVar(&cfg.messages, "messages", 100, "messages that each client sends")
	flags.IntVar(&cfg.workers, "workers", multithreaded.DefaultWorkers, "worker goroutines of tcp; poll and udp have one")
	flags.DurationVar(&cfg.timeout, "timeout", time.Minute, "give up after this time")
	flags.BoolVar(&cfg.json, "json", false, "print one JSON object")
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: demo [flags] [poll|udp|tcp]")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	chosen, backend, err := cfg.check(flags.Args())
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 2
	}
	cfg.backend = backend

	ctx, cancel := context.WithTimeoutCause(ctx, cfg.timeout, fmt.Errorf("not done after %v", cfg.timeout))
	defer cancel()
	rep := report{Backend: backend}
	status := 0
	for _, s := range chosen {
		o := outcome{Name: s.name}
		start := time.Now()
		err := s.run(ctx, cfg, &o)
		o.judge(err, time.Since(start))
		if !o.OK {
			fmt.Fprintf(stderr, "demo: %s: %s\n", o.Name, o.Error)
			status = 1
		}
		rep.Scenarios = append(rep.Scenarios, o)
	}
	print := rep.table
	if cfg.json {
		print = rep.json
	}
	if err := print(stdout); err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		status = 1
	}
	return status
}

// check returns the scenarios and the backend to run, or an error for the first invalid argument.
func (c *config) check(args []string) (chosen []scenario, backend string, err error) {
	for _, n := range []struct {
		flag       string
		value, max int
	}{
		{"-clients", c.clients, maxClients},
		{"-messages", c.messages, maxMessages},
		{"-workers", c.workers, maxWorkers},
	} {
		if n.value < 1 || n.value > n.max {
			return nil, "", fmt.Errorf("%s %d: must be from 1 to %d", n.flag, n.value, n.max)
		}
	}
	if c.timeout <= 0 {
		return nil, "", fmt.Errorf("-timeout %v: must be positive", c.timeout)
	}
	switch len(args) {
	case 0:
		chosen = scenarios
	case 1:
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == args[0] })
		if i < 0 {
			return nil, "", fmt.Errorf("unknown scenario %q: want poll, udp or tcp", args[0])
		}
		chosen = scenarios[i : i+1]
	default:
		return nil, "", fmt.Errorf("at most one scenario, got %q", args)
	}
	port, err := socknotify.New[int](socknotify.WithBackend(c.backend))
	if err != nil {
		return nil, "", err
	}
	return chosen, port.Backend(), port.Close()
}

// judge sets the verdict.
func (o *outcome) judge(err error, elapsed time.Duration) {
	o.ElapsedMS = float64(elapsed.Microseconds()) / 1000
	switch {
	case err != nil:
	case o.Bytes != o.ExpectedBytes:
		err = fmt.Errorf("%d bytes arrived, want %d", o.Bytes, o.ExpectedBytes)
	case o.Removals != o.ExpectedRemovals:
		err = fmt.Errorf("%d removals, want %d", o.Removals, o.ExpectedRemovals)
	}
	o.OK = err == nil
	if err != nil {
		o.Error = err.Error()
	}
}

func (r *report) json(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// table prints the report as text.
func (r *report) table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "scenario\tbackend\tworkers\tclients\tnotifications\tbytes\tremovals\ttime\tverdict\t")
	for _, o := range r.Scenarios {
		verdict := "ok"
		if !o.OK {
			verdict = "FAILED"
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f ms\t%s\t\n",
			o.Name, r.Backend, o.Workers, o.Clients, o.Notifications, o.Bytes, o.Removals, o.ElapsedMS, verdict)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, o := range r.Scenarios {
		if len(o.PerWorker) < 2 {
			continue
		}
		busy := 0
		for _, n := range o.PerWorker {
			if n > 0 {
				busy++
			}
		}
		if _, err := fmt.Fprintf(w, "\n%s: %d of %d workers handled notifications, from %d to %d each.\n"+
			"An uneven spread is no fault. Each notification goes to one waiting worker. A port wakes only as many workers as\n"+
			"it has work for, and first the one that went to sleep last, because its memory is still in the processor's cache.\n",
			o.Name, busy, len(o.PerWorker), slices.Min(o.PerWorker), slices.Max(o.PerWorker)); err != nil {
			return err
		}
	}
	return nil
}
