// Command socknotify shows package socknotify at work.
//
//	socknotify demo             run the three samples over loopback sockets
//	socknotify demo poll        one TCP connection, level-triggered, one goroutine
//	socknotify demo udp         an edge-triggered datagram server
//	socknotify demo tcp         many workers and many connections on one port
//	socknotify serve echo       an echo server; also discard and chargen
//	socknotify load             a load generator for it, with a latency histogram
//	socknotify info             backends, limits and versions
//
// With --json demo, load and info print one JSON object instead. Errors go to standard error. The exit status is 0
// when all is well, 1 when something failed or a verdict is not ok, and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// A failure is an error that is not the command line's: exit status 1.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// run executes a command line and returns its exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:               "socknotify",
		Short:             "Socket state notifications at work",
		Version:           moduleVersion(),
		Args:              cobra.NoArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(demoCommand(), serveCommand(), loadCommand(), infoCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
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
