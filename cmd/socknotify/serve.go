package main

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/echo"
)

type serveFlags struct {
	addr      string
	backend   string
	workers   int
	listeners int
	debugAddr string
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve over TCP until interrupted",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f := &serveFlags{}
	echoCmd := &cobra.Command{
		Use:   "echo",
		Short: "Send back what comes in",
		Long: "Send back what comes in, over TCP, on one port with many workers and one-shot registrations.\n" +
			"An interrupt lets the peers have what they are owed and prints totals.",
		Example: "  socknotify serve echo --addr 127.0.0.1:9000",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := echoCmd.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:9000", "address to listen on; port 0 is any")
	flags.IntVar(&f.workers, "workers", runtime.GOMAXPROCS(0), "goroutines that serve")
	flags.IntVar(&f.listeners, "listeners", 1, "sockets that share the address (SO_REUSEPORT)")
	flags.StringVar(&f.debugAddr, "debug-addr", "", "loopback address for the live page; none without it")
	flags.StringVar(&f.backend, "backend", "", "kernel to run on (default $"+socknotify.BackendEnv+", or the system's first)")
	cmd.AddCommand(echoCmd)
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	for _, n := range []struct {
		flag  string
		value int
	}{{"workers", f.workers}, {"listeners", f.listeners}} {
		if n.value < 1 || n.value > maxWorkers {
			return fmt.Errorf("--%s %d: must be from 1 to %d", n.flag, n.value, maxWorkers)
		}
	}
	addr, err := resolveAddr(f.addr)
	if err != nil {
		return err
	}
	backend, err := resolve(f.backend)
	if err != nil {
		return err
	}
	page, err := listenDebug(f.debugAddr, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer page.close()
	start := time.Now()
	totals, err := echo.Run(cmd.Context(), echo.Config{
		Addr: addr, Workers: f.workers, Listeners: f.listeners, Backend: backend,
		Listening: func(a netip.AddrPort) {
			fmt.Fprintf(cmd.ErrOrStderr(), "echo on %v: %s, %d workers\n", a, backend, f.workers)
		},
		Failed: func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), err) },
		Watch:  page.mount,
	})
	if err != nil {
		return failure{err}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "connections %d  messages %d  bytes %d  seconds %.1f\n",
		totals.Connections, totals.Messages, totals.Bytes, time.Since(start).Seconds())
	return nil
}

// resolveAddr turns host:port into one address. No host is every address of the machine.
func resolveAddr(s string) (netip.AddrPort, error) {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--addr %s: %w", s, err)
	}
	if a.IP == nil {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(a.Port)), nil
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()), nil
}
