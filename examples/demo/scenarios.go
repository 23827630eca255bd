package main

import (
	"context"
	"fmt"

	"github.com/socknotify/socknotify/examples/multithreaded"
	"github.com/socknotify/socknotify/examples/poll"
	"github.com/socknotify/socknotify/examples/udp"
)

// A scenario runs one example.
type scenario struct {
	name string
	run  func(context.Context, config, *outcome) error
}

var scenarios = []scenario{
	{"poll", runPoll},
	{"udp", runUDP},
	{"tcp", runTCP},
}

func runPoll(ctx context.Context, cfg config, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = 1, 1, 1
	r, err := poll.Run(ctx, poll.Config{Backend: cfg.backend, Messages: cfg.messages})
	o.Notifications, o.PerWorker = r.Notifications, []int{r.Notifications}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	return err
}

func runUDP(ctx context.Context, cfg config, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = 1, 1, 1
	r, err := udp.Run(ctx, udp.Config{Backend: cfg.backend, Datagrams: cfg.messages})
	o.Notifications, o.PerWorker = r.Notifications, []int{r.Notifications}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	switch {
	case err != nil:
		return err
	case r.Hangups != 0:
		return fmt.Errorf("%d hangups of a datagram socket", r.Hangups)
	case r.Datagrams != cfg.messages:
		return fmt.Errorf("%d datagrams arrived, want %d", r.Datagrams, cfg.messages)
	}
	return nil
}

func runTCP(ctx context.Context, cfg config, o *outcome) error {
	o.Workers, o.Clients, o.ExpectedRemovals = cfg.workers, cfg.clients, cfg.clients
	r, err := multithreaded.Run(ctx, multithreaded.Config{
		Backend: cfg.backend, Workers: cfg.workers, Clients: cfg.clients, Messages: cfg.messages,
	})
	o.Notifications, o.PerWorker = r.Notifications, r.PerWorker
	if o.PerWorker == nil {
		o.PerWorker = []int{}
	}
	o.Bytes, o.ExpectedBytes, o.Removals = r.Bytes, r.ExpectedBytes, r.Removals
	return err
}
