package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/internal/debugdata"
)

type traceFlags struct {
	port   string
	socket uint64
	kind   string
	count  int
	json   bool
}

func traceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace ADDRESS",
		Short: "Print what running ports do, as it happens",
		Long: "Print the notifications, accepts, registrations, removals, posts and completions of all ports of a\n" +
			"program, or of one, as they happen, until interrupted. ADDRESS is the host:port or the URL of the\n" +
			"program's debug page.",
		Example: "  socknotify trace 127.0.0.1:6060\n" +
			"  socknotify trace 127.0.0.1:6060 --socket 12 --kind notified --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.port, "port", "", "only the port of this name")
	flags.Uint64Var(&f.socket, "socket", 0, "only this socket")
	flags.StringVar(&f.kind, "kind", "", "only notified, accepted, registered, removed, lost, posted or completed")
	flags.IntVar(&f.count, "count", 0, "end after this number of events; 0 is never")
	flags.BoolVar(&f.json, "json", false, "print one JSON object per line")
	return cmd
}

func (f *traceFlags) run(cmd *cobra.Command, where string) error {
	if f.count < 0 {
		return fmt.Errorf("--count %d: must not be negative", f.count)
	}
	if f.kind != "" && !slices.Contains(debugdata.TraceKinds, f.kind) {
		kinds := strings.Join(debugdata.TraceKinds, ", ")
		return fmt.Errorf("--kind %s: must be one of %s", f.kind, kinds)
	}
	c, err := newDebugClient(where)
	if err != nil {
		return err
	}
	defer c.close()
	names := []string{f.port}
	if f.port == "" {
		var all debugdata.Ports
		if err := c.get(cmd.Context(), "ports", nil, &all); err != nil {
			return unlessDone(cmd.Context().Err(), err)
		}
		names = nil
		for _, p := range all.Ports {
			names = append(names, p.Name)
		}
		if len(names) == 0 {
			return failure{errors.New("the page has no port; a server has its ports when it serves")}
		}
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	lines, ended := make(chan []byte), make(chan error, len(names))
	for _, name := range names {
		body, err := c.open(ctx, "trace", f.query(name))
		if err != nil {
			return unlessDone(cmd.Context().Err(), err)
		}
		reading.Go(func() {
			defer body.Close()
			in := bufio.NewScanner(body)
			for in.Scan() && ctx.Err() == nil {
				select {
				case lines <- bytes.Clone(in.Bytes()):
				case <-ctx.Done():
				}
			}
			ended <- cmp.Or(in.Err(), errors.New("the port was closed"))
		})
	}
	for n, open := 0, len(names); ; {
		select {
		case line := <-lines:
			if err := f.print(cmd.OutOrStdout(), line); err != nil {
				return failure{err}
			}
			if n++; n == f.count {
				return nil
			}
		case err := <-ended:
			if open--; open == 0 {
				return unlessDone(cmd.Context().Err(), err)
			}
		}
	}
}

// query returns the query for the trace of a port.
func (f *traceFlags) query(port string) url.Values {
	q := url.Values{"port": {port}}
	if f.kind != "" {
		q.Set("kind", f.kind)
	}
	if f.socket != 0 {
		q.Set("socket", strconv.FormatUint(f.socket, 10))
	}
	return q
}

// unlessDone returns a failure, or nil if the user has ended the command.
func unlessDone(done, err error) error {
	if done != nil {
		return nil
	}
	return failed(err)
}

func (f *traceFlags) print(w io.Writer, line []byte) error {
	var e debugdata.Event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("invalid trace event: %w", err)
	}
	if f.json {
		_, err := fmt.Fprintf(w, "%s\n", line)
		return err
	}
	_, err := fmt.Fprintln(w, strings.TrimRight(traceLine(&e), " "))
	return err
}

// traceLine formats an event as text.
func traceLine(e *debugdata.Event) string {
	at := e.Time.Local().Format("15:04:05.00")
	switch e.Kind {
	case "missed":
		return fmt.Sprintf("%s  %d missed", at, e.Missed)
	case "posted":
		return fmt.Sprintf("%s  %-10s  data %d", at, e.Kind, e.Data)
	}
	peers := e.Local
	if e.Remote != "" {
		peers += " < " + e.Remote
	}
	return fmt.Sprintf("%s  %-10s  %6d  %-13s  %s  %s", at, e.Kind, e.Socket, e.Events, peers, printable(e.Key))
}
