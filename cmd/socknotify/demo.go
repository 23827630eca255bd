package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/multithreaded"
)

// demoFlags are the flags of demo and of its subcommands.
type demoFlags struct {
	backend  string
	clients  int
	messages int
	workers  int
	timeout  time.Duration
	json     bool
}

// The bounds keep a slip of the finger from taking the machine down.
const (
	maxClients  = 20_000
	maxMessages = 10_000_000
	maxWorkers  = 10_000
)

func demoCommand() *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the three samples over real loopback sockets",
		Long: "Run the samples over real loopback sockets and check what arrived:\n" +
			"every byte, and exactly one removal for each registration.",
		Example: "  socknotify demo\n  socknotify demo --backend poll --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, scenarios...) },
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.backend, "backend", "", "kernel to run on (default $"+socknotify.BackendEnv+", or the system's first)")
	flags.IntVar(&f.clients, "clients", multithreaded.DefaultClients, "clients of tcp; poll and udp have 1")
	flags.IntVar(&f.messages, "messages", 100, "messages that each client sends")
	flags.IntVar(&f.workers, "workers", multithreaded.DefaultWorkers, "workers of tcp; poll and udp have 1")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "give up after this time")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	for _, s := range scenarios {
		cmd.AddCommand(&cobra.Command{
			Use:     s.name,
			Short:   s.short,
			Example: "  socknotify demo " + s.name + " --messages 1000",
			Args:    cobra.NoArgs,
			RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
		})
	}
	return cmd
}

// check reports the first flag that makes no sense for the scenarios.
func (f *demoFlags) check(cmd *cobra.Command, list []scenario) error {
	for _, n := range []struct {
		flag       string
		value, max int
	}{
		{"clients", f.clients, maxClients},
		{"messages", f.messages, maxMessages},
		{"workers", f.workers, maxWorkers},
	} {
		if n.value < 1 || n.value > n.max {
			return fmt.Errorf("--%s %d: must be from 1 to %d", n.flag, n.value, n.max)
		}
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %v: must be positive", f.timeout)
	}
	if len(list) == 1 && list[0].single {
		for flag, value := range map[string]int{"clients": f.clients, "workers": f.workers} {
			if cmd.Flags().Changed(flag) && value != 1 {
				return fmt.Errorf("--%s %d: %s has one; use demo tcp", flag, value, list[0].name)
			}
		}
	}
	return nil
}

// resolve names the backend that ports will run on.
func resolve(flag string) (string, error) {
	name, from := flag, "--backend"
	if name == "" {
		name, from = os.Getenv(socknotify.BackendEnv), socknotify.BackendEnv
	}
	backends := socknotify.Backends()
	switch {
	case len(backends) == 0:
		return "", failure{fmt.Errorf("no backend for this system yet: %w", errors.ErrUnsupported)}
	case name == "":
		return backends[0], nil
	case !slices.Contains(backends, name):
		p, err := socknotify.New[int](socknotify.WithBackend(name)) // which knows why
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		p.Close() // it has come to be meanwhile
	}
	return name, nil
}

// report is the JSON object.
type report struct {
	Backend   string    `json:"backend"`
	Scenarios []outcome `json:"scenarios"`
}

// An outcome is how a scenario went.
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

// judge gives the verdict.
func (o *outcome) judge(err error, elapsed time.Duration) {
	o.ElapsedMS = float64(elapsed.Microseconds()) / 1000
	if err == nil {
		switch {
		case o.Bytes != o.ExpectedBytes:
			err = fmt.Errorf("%d bytes arrived, expected %d", o.Bytes, o.ExpectedBytes)
		case o.Removals != o.ExpectedRemovals:
			err = fmt.Errorf("%d removals, expected %d", o.Removals, o.ExpectedRemovals)
		}
	}
	o.OK = err == nil
	if err != nil {
		o.Error = err.Error()
	}
}

func (f *demoFlags) run(cmd *cobra.Command, list ...scenario) error {
	if err := f.check(cmd, list); err != nil {
		return err
	}
	backend, err := resolve(f.backend)
	if err != nil {
		return err
	}
	f.backend = backend
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, fmt.Errorf("not done after %v", f.timeout))
	defer cancel()

	rep := report{Backend: backend}
	var failed []string
	for _, s := range list {
		o := outcome{Name: s.name}
		start := time.Now()
		err := s.run(ctx, f, &o)
		o.judge(err, time.Since(start))
		rep.Scenarios = append(rep.Scenarios, o)
		if !o.OK {
			failed = append(failed, o.Name+": "+o.Error)
		}
	}
	print := rep.table
	if f.json {
		print = rep.json
	}
	if err := print(cmd.OutOrStdout()); err != nil {
		return failure{err}
	}
	if failed != nil {
		return failure{errors.New(strings.Join(failed, "; "))}
	}
	return nil
}

func (r *report) json(w io.Writer) error { return printJSON(w, r) }

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
