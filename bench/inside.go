//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"time"

	"github.com/socknotify/socknotify/internal/load"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/counters"
	"github.com/socknotify/socknotify/bench/internal/param"
)

// The commands below are started by a run.

// contender runs a contender: contend WORKLOAD NAME PARAMETERS MILLISECONDS.
func contender(_ context.Context, args []string, stdout io.Writer) error {
	signal.Reset() // signals end servers
	if len(args) != 4 {
		return errors.New("contend workload name parameters milliseconds")
	}
	c, err := contend.Find(args[0], args[1])
	if err != nil {
		return err
	}
	var p param.Params
	if err := json.Unmarshal([]byte(args[2]), &p); err != nil {
		return fmt.Errorf("parameters %q: %w", args[2], err)
	}
	if p.Millis, err = strconv.Atoi(args[3]); err != nil {
		return err
	}
	o, err := c.Run(p, func(addr string) { fmt.Fprintln(stdout, "ready", addr) })
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(o)
}

// generate is the load generator. It prints a line when its connections are made, and runs until it
// is ended.
func generate(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("load address flags")
	}
	cfg := load.Config{
		Addr: args[0], Duration: load.MaxTime, Timeout: time.Minute, Drain: time.Millisecond, Strict: true, Reset: true,
		Connected: func() { fmt.Fprintln(stdout, "ready") },
	}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.IntVar(&cfg.Connections, "connections", 1, "")
	f.IntVar(&cfg.Active, "busy", 0, "")
	f.IntVar(&cfg.Size, "size", 64, "")
	f.IntVar(&cfg.Depth, "depth", 1, "")
	f.IntVar(&cfg.Workers, "workers", 1, "")
	f.Float64Var(&cfg.Rate, "rate", 0, "")
	f.IntVar(&cfg.Requests, "requests", 0, "")
	f.BoolVar(&cfg.Reconnect, "reconnect", false, "")
	path := f.String("counters", "", "")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	if cfg.Workers > counters.Max {
		return fmt.Errorf("-workers %d: at most %d", cfg.Workers, counters.Max)
	}
	c, err := counters.Open(*path)
	if err != nil {
		return err
	}
	defer c.Close()
	cfg.Answered = c.Of
	_, err = load.Run(ctx, cfg, nil)
	return err
}
