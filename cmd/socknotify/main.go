// Command socknotify shows package socknotify at work.
//
//	socknotify serve echo       an echo server; also discard and chargen
//	socknotify serve http       net/http with its idle connections parked, with or without TLS
//	socknotify proxy            a reverse proxy for HTTP and TCP, with its idle connections parked
//	socknotify load             a load generator for it, with a latency histogram
//	socknotify top              a dashboard of a running port, through its debug page
//	socknotify trace            what a running port notifies, as it happens
//	socknotify info             backends, limits and versions
//	socknotify completion       completion for bash, zsh, fish and PowerShell
//
// With --json load and info print one JSON object instead, and trace prints one per line. Errors go
// to standard error. The exit status is 0 on success, 1 after a failure, and 2 for wrong usage. An
// interrupt ends a command that runs until interrupted with status 0: serve sends what it has
// queued, load waits for the answers under way, and both print their totals; top and trace end at
// once.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A failure is an error of the run, not of the command line: exit status 1.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed returns err as a failure, or nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return failure{err}
}

// within returns an error if the value of a flag is not from min to max.
func within[T cmp.Ordered](flag string, value, min, max T) error {
	if value >= min && value <= max { // a NaN is not
		return nil
	}
	return fmt.Errorf("--%s %v: must be from %v to %v", flag, value, min, max)
}

// print prints v as one JSON object, or what text returns.
func print(w io.Writer, asJSON bool, v any, text func() string) error {
	if !asJSON {
		_, err := io.WriteString(w, text())
		return failed(err)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return failed(enc.Encode(v))
}

// align lays rows out in columns.
func align(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	return b.String()
}

// run executes a command line and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "socknotify",
		Short: "Socket state notifications at work",
		Long: "Socket state notifications at work: servers, load on them, and what their ports do.\n\n" +
			"The exit status is 0 on success, also after an interrupt of a command that runs until interrupted;\n" +
			"1 after a failure; and 2 for wrong usage.",
		Example: "  socknotify serve echo --addr 127.0.0.1:9000 --debug-addr 127.0.0.1:6060\n" +
			"  socknotify load --addr 127.0.0.1:9000\n" +
			"  socknotify top 127.0.0.1:6060",
		Version:       moduleVersion(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(serveCommand(), proxyCommand(), loadCommand(), topCommand(), traceCommand(), infoCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd(args...)
	complete(root)
	if c, _, err := root.Find([]string{"completion"}); err == nil {
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // otherwise another shell is not an error
		c.Example = "  source <(socknotify completion bash)"
	}
	root.InitDefaultHelpCmd()
	if c, _, err := root.Find([]string{"help"}); err == nil {
		c.Run = nil
		c.RunE = func(_ *cobra.Command, args []string) error {
			of, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("no help for %q", rest[0]) // cobra reports this with exit status 0
			}
			if err != nil {
				return err
			}
			return of.Help()
		}
	}
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "socknotify: %v\n", err)
	if errors.As(err, new(failure)) {
		return 1
	}
	fmt.Fprintln(stderr, "Run 'socknotify help' for usage.")
	return 2
}
