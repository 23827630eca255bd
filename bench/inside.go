//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/signal"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/load"
	"github.com/socknotify/socknotify/bench/internal/param"
)

// The commands that a run starts itself.

// contendCommand is a contender: contend WORKLOAD NAME PARAMETERS MILLISECONDS.
func contendCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "contend workload name parameters milliseconds",
		Hidden: true,
		Args:   cobra.ExactArgs(4),
		RunE: func(cmd *cobra.Command, args []string) error {
			signal.Reset() // servers are ended by them
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

// loadCommand is the load generator. It says when it is ready, and goes on until it is ended.
func loadCommand() *cobra.Command {
	var cfg load.Config
	var counters string
	cmd := &cobra.Command{
		Use:    "load kind address",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Kind = args[0]
			var err error
			if cfg.Addr, err = netip.ParseAddrPort(args[1]); err != nil {
				return err
			}
			c, err := load.OpenCounters(counters)
			if err != nil {
				return err
			}
			defer c.Close()
			return load.Run(cmd.Context(), cfg, c, func() { fmt.Fprintln(cmd.OutOrStdout(), "ready") })
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Connections, "connections", 1, "")
	f.IntVar(&cfg.Busy, "busy", 0, "")
	f.IntVar(&cfg.Size, "size", 64, "")
	f.IntVar(&cfg.Depth, "depth", 1, "")
	f.IntVar(&cfg.Threads, "threads", 1, "")
	f.Float64Var(&cfg.Rate, "rate", 0, "")
	f.IntVar(&cfg.Burst, "burst", 1, "")
	f.StringVar(&counters, "counters", "", "")
	return cmd
}

// windowCommand waits, at least until there was an operation, and prints how many were counted meanwhile.
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
			c, err := load.OpenCounters(args[0])
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
