package main

import (
	"context"
	"fmt"

	"github.com/socknotify/socknotify/examples/multithreaded"
	"github.com/socknotify/socknotify/examples/poll"
	"github.com/socknotify/socknotify/examples/udp"
)

// A scenario runs one sample.
type scenario struct {
	name, short string
	single      bool // one worker, one client
	run         func(context.Context, *demoFlags, *outcome) error
}

var scenarios = []scenario{
	{"poll", "A port in the place of poll: one connection, level-triggered", true, runPoll},
	{"udp", "An edge-triggered datagram server", true, runUDP},
	{"tcp", "A multi-threaded server: level-triggered, one-shot", false, runTCP},
}

func runPoll(ctx context.Context, f *demoFlags, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = 1, 1, 1
	r, err := poll.Run(ctx, poll.Config{Backend: f.backend, Messages: f.messages})
	o.Notifications, o.PerWorker = r.Notifications, []int{r.Notifications}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	return err
}

func runUDP(ctx context.Context, f *demoFlags, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = 1, 1, 1
	r, err := udp.Run(ctx, udp.Config{Backend: f.backend, Datagrams: f.messages})
	o.Notifications, o.PerWorker = r.Notifications, []int{r.Notifications}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	switch {
	case err != nil:
		return err
	case r.Hangups != 0:
		return fmt.Errorf("%d hang-ups of a datagram socket", r.Hangups)
	case r.Datagrams != f.messages:
		return fmt.Errorf("%d datagrams arrived, expected %d", r.Datagrams, f.messages)
	}
	return nil
}

func runTCP(ctx context.Context, f *demoFlags, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = f.workers, f.clients, f.clients
	r, err := multithreaded.Run(ctx, multithreaded.Config{
		Backend: f.backend, Workers: f.workers, Clients: f.clients, Messages: f.messages,
	})
	o.Notifications, o.PerWorker = r.Notifications, r.PerWorker
	if o.PerWorker == nil {
		o.PerWorker = []int{}
	}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	return err
}
