//go:build linux

package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/bench/internal/record"
	"github.com/socknotify/socknotify/bench/internal/suite"
)

//go:embed c
var sources embed.FS

// csources returns the sources of the C programs.
func csources() fs.FS {
	c, err := fs.Sub(sources, "c")
	if err != nil {
		return sources // not possible: the name is valid
	}
	return c
}

type flags struct {
	quick, json bool
	out         string
	rounds      int
	window      time.Duration
	external    map[string]string
	list        bool
	only        string
	contender   string
	within      time.Duration
	summary     string
}

// docs is where the results of a full run go.
const docs = "../docs/bench"

func rootCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "bench [workload...]",
		Short: "Measure socknotify beside other event loops",
		Long: "Measure socknotify on each of its backends, the standard library, other event loops and C, with the\n" +
			"same workloads, each contender in a process of its own and the reference before and after it.\n\n" +
			workloadList(),
		Args:          cobra.ArbitraryArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.quick, "quick", false, "one short round with fewer parameters; its figures mean nothing")
	fl.BoolVar(&f.json, "json", false, "print a line of JSON for each workload, parameters and contender")
	fl.StringVar(&f.out, "out", "", "folder for tables, JSON and plots (default "+docs+"; with -quick, -only or -contender, none)")
	fl.IntVar(&f.rounds, "rounds", 0, "samples of each contender in the main sets of parameters (default 9)")
	fl.DurationVar(&f.window, "window", 0, "time that a sample measures (default 150ms)")
	fl.StringToStringVar(&f.external, "external", nil,
		"further echo servers, as name=program: it listens on 127.0.0.1, prints \"ready HOST:PORT\" and serves on GOMAXPROCS processors")
	fl.StringVar(&f.only, "only", "", "only parameters that contain this, such as \"connections=100 \"")
	fl.StringVar(&f.contender, "contender", "", "beside the reference, only contenders whose names contain this, such as \"epoll server\"")
	fl.DurationVar(&f.within, "within", 0, "time for the run, such as 38m; if it is short, side sets of parameters have fewer rounds")
	fl.StringVar(&f.summary, "summary", "", "measure nothing; print which promises the results in this folder keep")
	fl.BoolVar(&f.list, "list", false, "measure nothing; list the contenders, and why any is missing")
	cmd.AddCommand(watchedCommand(), redisCommand(), redisServerCommand(), contendCommand(), loadCommand(), windowCommand())
	return cmd
}

func workloadList() string {
	var b strings.Builder
	b.WriteString("Workloads:\n")
	for _, w := range suite.Workloads() {
		fmt.Fprintf(&b, "  %-9s %s\n", w.Name, w.Doc)
	}
	return b.String()
}

func (f *flags) options(stderr io.Writer) (suite.Options, error) {
	o := suite.Options{
		Sources: csources(), External: f.external, Quick: f.quick, Only: f.only, Contender: f.contender, Within: f.within, Warnings: stderr,
		Rounds: cmp.Or(f.rounds, 9), Window: cmp.Or(f.window, 150*time.Millisecond), Warm: 80 * time.Millisecond,
	}
	if f.quick {
		o.Rounds, o.Window, o.Warm = cmp.Or(f.rounds, 1), cmp.Or(f.window, 50*time.Millisecond), 30*time.Millisecond
	} else if f.only == "" && f.contender == "" {
		f.out = cmp.Or(f.out, docs)
	}
	if o.Rounds < 1 || o.Window < time.Millisecond {
		return o, errors.New("-rounds must be at least 1, and -window at least 1ms")
	}
	for name, path := range f.external {
		if _, err := os.Stat(path); err != nil {
			return o, fmt.Errorf("-external %s: %w", name, err)
		}
	}
	file, ok := stderr.(*os.File)
	o.Progress = suite.Progress{W: stderr, Terminal: ok && isTerminal(file)}
	var err error
	o.Self, err = os.Executable()
	return o, err
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (f *flags) run(cmd *cobra.Command, names []string) error {
	if f.summary != "" {
		return summarize(cmd.OutOrStdout(), f.summary)
	}
	workloads, err := suite.Choose(names)
	if err != nil {
		return err
	}
	o, err := f.options(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	e, err := suite.NewEnv(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer e.Close()
	if f.list {
		return list(cmd, e, workloads)
	}
	facts := e.Facts(cmd.Context())
	for _, line := range facts {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
	e.Plan(cmd.Context(), workloads)
	fmt.Fprintf(cmd.ErrOrStderr(), "about %s\n", suite.Rough(e.Left()))
	var failed error
	for _, w := range workloads {
		failed = errors.Join(failed, f.workload(cmd, e, w, facts))
		if cmd.Context().Err() != nil {
			break
		}
	}
	return failed
}

// workload runs one workload and reports it. The results so far are saved after each set of parameters.
func (f *flags) workload(cmd *cobra.Command, e *suite.Env, w *suite.Workload, facts []string) error {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	var all []record.Record
	var unsaved error
	sets, done, start := e.Sets(w), 0, time.Now()
	err := e.Run(cmd.Context(), w, func(set suite.Set, records []record.Record) {
		done++
		e.Progress.Clear()
		fmt.Fprintf(stderr, "%s %v: %.0f s; about %s left\n", w.Name, set.Params, time.Since(start).Seconds(), suite.Rough(e.Left()))
		start = time.Now()
		all = append(all, records...)
		if f.json {
			record.WriteJSON(stdout, records)
		}
		if f.out == "" || len(all) == 0 {
			return
		}
		said := facts
		if done < len(sets) {
			said = append(slices.Clip(said), fmt.Sprintf("%d of %d sets of parameters so far", done, len(sets)))
		}
		unsaved = record.Save(f.out, w.Name, w.Doc, said, all)
	})
	if len(all) == 0 {
		return err // -only may exclude all sets
	}
	if !f.json {
		fmt.Fprintf(stdout, "\n%s: %s\n%s\n", w.Name, w.Doc, record.Table(all).Render())
		for _, missing := range record.Missing(all) {
			fmt.Fprintln(stdout, "not measured:", missing)
		}
	}
	if f.out == "" {
		return err
	}
	return errors.Join(err, unsaved, writeIndex(f.out))
}

// list prints the contenders.
func list(cmd *cobra.Command, e *suite.Env, workloads []*suite.Workload) error {
	for _, w := range workloads {
		fmt.Fprintln(cmd.OutOrStdout(), w.Name)
		for _, c := range e.Contenders(cmd.Context(), w) {
			line := c.Name
			if c.Missing != "" {
				line += ": missing: " + c.Missing
			}
			fmt.Fprintln(cmd.OutOrStdout(), "  "+line)
		}
	}
	return nil
}
