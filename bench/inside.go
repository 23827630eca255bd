//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"time"

	"github.com/socknotify/socknotify/internal/load"

	"github.com/socknotify/socknotify/bench/internal/contend"
	"github.com/socknotify/socknotify/bench/internal/proc"
)

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
	defer c.Close()
	_, err = load.Run(ctx, load.Config{
		Addr: l.Addr, Connections: l.Connections, Active: l.Busy, Size: l.Size, Depth: max(l.Depth, 1),
		Workers: l.Workers, Rate: l.Rate, Requests: l.Each, Reconnect: l.Reconnect,
		Duration: load.MaxTime, Timeout: time.Minute, Drain: time.Millisecond, Strict: true, Reset: true,
		Connected: func() { fmt.Fprintln(stdout, "ready") }, Answered: c.Of,
	}, nil)
	return err
}
