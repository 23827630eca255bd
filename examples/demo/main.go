// Command demo runs three examples over loopback sockets. It verifies that every byte arrives and
// that every registration receives exactly one EventRemove.
//
//	go run ./examples/demo                  on the default backend
//	go run ./examples/demo -backend poll    on another one
//
// The exit status is 0 if every example passed, 1 if one failed, and 2 for wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/examples/multithreaded"
	"github.com/socknotify/socknotify/examples/poll"
	"github.com/socknotify/socknotify/examples/udp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// messages is how many messages each client sends.
const messages = 100

// An outcome is what an example counted.
type outcome struct {
	workers, clients int
	client.Result
}

// An example runs one server and its clients on a backend.
type example struct {
	name string
	run  func(ctx context.Context, backend string) (outcome, error)
}

var examples = []example{
	{"poll", func(ctx context.Context, backend string) (outcome, error) {
		r, err := poll.Run(ctx, poll.Config{Backend: backend, Messages: messages})
		return outcome{1, 1, r}, err
	}},
	{"udp", func(ctx context.Context, backend string) (outcome, error) {
		r, err := udp.Run(ctx, udp.Config{Backend: backend, Datagrams: messages})
		if err == nil && r.Hangups != 0 {
			err = fmt.Errorf("%d hangups of a datagram socket", r.Hangups)
		}
		return outcome{1, 1, r.Result}, err
	}},
	{"tcp", func(ctx context.Context, backend string) (outcome, error) {
		c := multithreaded.Config{
			Backend: backend, Messages: messages,
			Workers: multithreaded.DefaultWorkers, Clients: multithreaded.DefaultClients,
		}
		r, err := multithreaded.Run(ctx, c)
		return outcome{c.Workers, c.Clients, r.Result}, err
	}},
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (status int) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	backend := flags.String("backend", "", "one of "+strings.Join(socknotify.Backends(), ", ")+
		" (default $"+socknotify.BackendEnv+", or the first)")
	timeout := flags.Duration("timeout", time.Minute, "give up after this time")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	port, err := socknotify.New[int](socknotify.WithBackend(*backend))
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 2
	}
	name := port.Backend()
	port.Close()
	late := fmt.Errorf("not done after %v", *timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, late)
	defer cancel()
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer table.Flush()
	const head = "example\tbackend\tworkers\tclients\tnotifications\tbytes\tremovals\ttime\t\t"
	fmt.Fprintln(table, head)
	for _, e := range examples {
		start := time.Now()
		o, err := e.run(ctx, name)
		verdict := "ok"
		if err = o.judge(err); err != nil {
			fmt.Fprintf(stderr, "demo: %s: %v\n", e.name, err)
			verdict, status = "FAILED", 1
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f ms\t%s\t\n",
			e.name, name, o.workers, o.clients, o.Notifications, o.Bytes, o.Removals,
			time.Since(start).Seconds()*1000, verdict)
	}
	return status
}

// judge returns the error of an example, or what is missing.
func (o *outcome) judge(err error) error {
	switch {
	case err != nil:
		return err
	case o.Bytes != o.ExpectedBytes:
		return fmt.Errorf("%d bytes arrived, want %d", o.Bytes, o.ExpectedBytes)
	case o.Removals != o.clients:
		return fmt.Errorf("%d removals, want %d", o.Removals, o.clients)
	}
	return nil
}
