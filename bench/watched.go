//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"

	"github.com/socknotify/socknotify/bench/internal/param"
	"github.com/socknotify/socknotify/bench/internal/suite"
)

// watchedCommand measures the cost of observing a server.
func watchedCommand() *cobra.Command {
	f := &flags{}
	var backend string
	cmd := &cobra.Command{
		Use:   "watched",
		Short: "Measure what the debug page and metrics cost a server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if !f.quick {
				o.Rounds, o.Window, o.Warm = cmp.Or(f.rounds, 35), cmp.Or(f.window, time.Second), time.Second
			}
			return f.watched(cmd, o, backend)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.quick, "quick", false, "one short round; its figures mean nothing")
	fl.BoolVar(&f.json, "json", false, "print a line of JSON for each kind of observer")
	fl.IntVar(&f.rounds, "rounds", 0, "windows of each kind of observer (default 35)")
	fl.DurationVar(&f.window, "window", 0, "length of a window, in which there is one request of the observer (default 1s)")
	fl.StringVar(&f.only, "only", "", "only parameters that contain this, such as \"rate=2000 cores=1\"")
	fl.StringVar(&backend, "backend", socknotify.Backends()[0], "backend of the server's port")
	return cmd
}

func (f *flags) watched(cmd *cobra.Command, o suite.Options, backend string) error {
	e, err := suite.NewEnv(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer e.Close()
	for _, line := range e.Facts(cmd.Context()) {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
	sets := slices.DeleteFunc(suite.Watched(), func(p param.Params) bool { return !e.Wants(p) })
	each := e.WatchedTakes()
	fmt.Fprintf(cmd.ErrOrStderr(), "%d sets of parameters, about %s each\n", len(sets), suite.Rough(each))
	enc := json.NewEncoder(cmd.OutOrStdout())
	for _, p := range sets {
		records, err := e.RunWatched(cmd.Context(), p, backend)
		e.Progress.Clear()
		if len(records) > 0 && !f.json {
			fmt.Fprintln(cmd.OutOrStdout(), watchedTable(records))
			records = nil
		}
		if err != nil {
			return fmt.Errorf("watched %v: %w", p, err)
		}
		for i := range records {
			if err := enc.Encode(&records[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func watchedTable(records []suite.WatchedRecord) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"observer", "system calls", "quartiles", "more a second", "CPU", "quartiles", "rounds"})
	quartiles := func(s suite.Share) string { return fmt.Sprintf("%.3f to %.3f", s.Lower, s.Upper) }
	for _, r := range records {
		t.AppendRow(table.Row{
			r.Way, fmt.Sprintf("%.3f", r.Syscalls.Median), quartiles(r.Syscalls), fmt.Sprintf("%+.0f", r.More()), fmt.Sprintf("%.3f", r.CPU.Median), quartiles(r.CPU), r.Rounds,
		})
	}
	r := &records[0]
	return fmt.Sprintf("\nwatched %v, %s: %.0f requests/s, %.2f system calls and %.2f µs each without an observer, to which the ratios are\n%s",
		r.Params, r.Backend, r.PlainRate, r.PlainSyscalls, r.PlainCPU/1000, t.Render())
}
