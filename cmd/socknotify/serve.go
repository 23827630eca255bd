package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

type serveFlags struct {
	listenFlags
	workers, shards, listeners, conns int
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve over TCP until interrupted",
		Example: "  socknotify serve echo --addr 127.0.0.1:9000 --debug-addr 127.0.0.1:6060\n" +
			"  socknotify serve http --tls",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, s := range services {
		f := &serveFlags{}
		c := &cobra.Command{
			Use:   s.name,
			Short: s.short,
			Long:  s.long + "\nAn interrupt sends what is queued for the peers and prints totals.",
			Example: "  socknotify serve " + s.name + " --addr 127.0.0.1:9000\n" +
				"  socknotify serve " + s.name + " --tls --workers 4 --debug-addr 127.0.0.1:6060",
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
		}
		f.add(c)
		flags := c.Flags()
		flags.IntVar(&f.workers, "workers", runtime.GOMAXPROCS(0), "worker goroutines")
		flags.IntVar(&f.shards, "shards", 0, "ports that the workers are spread over; 0 is one for each worker")
		flags.IntVar(&f.listeners, "listeners", 1, "sockets that share the address (SO_REUSEPORT)")
		flags.IntVar(&f.conns, "max-connections", 0, "refuse connections beyond this number; 0 is no limit")
		cmd.AddCommand(c)
	}
	cmd.AddCommand(serveHTTPCommand())
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command, service service) error {
	if err := cmp.Or(
		within("workers", f.workers, 1, maxWorkers), within("shards", f.shards, 0, maxWorkers),
		within("listeners", f.listeners, 1, maxWorkers),
		within("max-connections", f.conns, 0, math.MaxInt),
	); err != nil {
		return err
	}
	addr, config, page, err := f.start(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer page.close()
	group, err := f.listen(addr)
	if err != nil {
		return failure{err}
	}
	var t totals
	s := &server.Server[tally]{
		Handler: service.handler(&t), Workers: f.workers, Shards: f.shards, Backend: f.backend,
		TLSConfig: config, IdleTimeout: f.idle, WriteTimeout: writeTimeout, MaxConns: f.conns,
		Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)), TimeCalls: page != nil,
	}
	serve := s.ServeSocket
	if config != nil {
		serve = func(l *sock.Socket) error { return s.ServeTLSSocket(l, "", "") }
	}
	start := time.Now()
	fmt.Fprintf(cmd.ErrOrStderr(), "%s on %v: %s, %d workers\n", service.name, group[0].LocalAddr(), f.backend, f.workers)
	page.mount(s, debug.Server(service.name, s))
	stop := func(ctx context.Context) { s.Shutdown(ctx) } // it closes the connections that remain
	if err := serveUntil(cmd.Context(), stop, serve, group...); err != nil {
		return failure{err}
	}
	s.Shutdown(context.Background())
	fmt.Fprintf(cmd.OutOrStdout(), "connections %d  messages %d  bytes %d  seconds %.1f\n",
		t.connections.Load(), t.messages.Load(), t.bytes.Load(), time.Since(start).Seconds())
	return nil
}

const (
	// maxWorkers bounds --workers, so that a typing error does not exhaust the machine.
	maxWorkers = 10_000
	// grace is how long a server that stops waits for its peers to receive what is queued.
	grace = 2 * time.Second
	// writeTimeout is how long a peer may receive nothing of what is queued for it.
	writeTimeout = time.Minute
)

// serveUntil serves on listeners until one fails or the context is done. Then it calls stop with a
// context of the grace period, and waits for all listeners. It returns the error of the one that
// failed.
func serveUntil[L any](
	ctx context.Context, stop func(context.Context), serve func(L) error, listeners ...L,
) (err error) {
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- serve(l) }()
	}
	left := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-ended:
		left--
	}
	limited, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	stop(limited)
	for range left {
		<-ended
	}
	return err
}

func (f *serveFlags) listen(addr netip.AddrPort) ([]*sock.Socket, error) {
	if f.listeners > 1 {
		return sock.ListenTCPGroup(addr, sock.ListenOptions{}, f.listeners)
	}
	l, err := sock.ListenTCP(addr, sock.ListenOptions{})
	return []*sock.Socket{l}, err
}
