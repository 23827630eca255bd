//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/internal/load"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/counters"
	"github.com/socknotify/socknotify/bench/internal/param"
)

// The commands below are started by a run.

// contendCommand runs a contender: contend WORKLOAD NAME PARAMETERS MILLISECONDS.
func contendCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "contend workload name parameters milliseconds",
		Hidden: true,
		Args:   cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Reset() // signals end servers
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
			o, err := c.Run(p, func(addr string) { fmt.Fprintln(cmd.OutOrStdout(), "ready", addr) })
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(o)
		},
	}
}

// loadCommand is the load generator. It prints a line when its connections are made, and runs until it is ended.
func loadCommand() *cobra.Command {
	cfg := load.Config{Duration: load.MaxTime, Timeout: time.Minute, Drain: time.Millisecond, Strict: true, Reset: true}
	var path string
	cmd := &cobra.Command{
		Use:    "load address",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.Workers > counters.Max {
				return fmt.Errorf("--workers %d: at most %d", cfg.Workers, counters.Max)
			}
			c, err := counters.Open(path)
			if err != nil {
				return err
			}
			defer c.Close()
			cfg.Addr, cfg.Answered = args[0], c.Of
			cfg.Connected = func() { fmt.Fprintln(cmd.OutOrStdout(), "ready") }
			_, err = load.Run(cmd.Context(), cfg, nil)
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Connections, "connections", 1, "")
	f.IntVar(&cfg.Active, "busy", 0, "")
	f.IntVar(&cfg.Size, "size", 64, "")
	f.IntVar(&cfg.Depth, "depth", 1, "")
	f.IntVar(&cfg.Workers, "workers", 1, "")
	f.Float64Var(&cfg.Rate, "rate", 0, "")
	f.IntVar(&cfg.Burst, "burst", 1, "")
	f.IntVar(&cfg.Requests, "requests", 0, "")
	f.BoolVar(&cfg.Reconnect, "reconnect", false, "")
	f.BoolVar(&cfg.UDP, "udp", false, "")
	f.StringVar(&path, "counters", "", "")
	return cmd
}

// windowCommand waits for a time, and longer until an operation was counted, and prints how many were counted.
func windowCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "window counters duration",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := time.ParseDuration(args[1])
			if err != nil {
				return err
			}
			c, err := counters.Open(args[0])
			if err != nil {
				return err
			}
			defer c.Close()
			before, start := c.Sum(), time.Now()
			for time.Since(start) < d || c.Sum() == before && time.Since(start) < time.Minute {
				time.Sleep(min(d, 10*time.Millisecond))
			}
			fmt.Fprintln(cmd.OutOrStdout(), c.Sum()-before)
			return nil
		},
	}
}
