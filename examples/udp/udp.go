// Package udp is the second example: an edge-triggered datagram server.
//
// An edge is notified when datagrams begin to arrive, not as long as they wait. So there are two
// rules. The server registers before it binds, so that no datagram can arrive before the
// registration. After each notification it receives until a receive would block, because only then
// is the next arrival an edge.
//
// Datagram sockets have no connection, so EventHangup is never notified, although the filter has
// it.
package udp

import (
	"context"
	"errors"
	"fmt"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/sock"
)

// Config says how much the client sends.
type Config struct {
	Backend   string // empty: the default
	Datagrams int
}

// Result is what the server counted. It wants one removal.
type Result struct {
	client.Result
	Datagrams int
	Hangups   int // want 0
}

// Run starts a server and its client, and returns when both are done.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	res.ExpectedBytes = int64(cfg.Datagrams) * client.MessageSize

	port, err := socknotify.New[*sock.Socket](socknotify.WithBackend(cfg.Backend))
	if err != nil {
		return res, err
	}
	defer port.Close()
	server, err := sock.New(sock.UDP4) // non-blocking, like every sock.Socket
	if err != nil {
		return res, err
	}
	defer server.Close()

	regs := []socknotify.Registration[*sock.Socket]{
		socknotify.Enable(server, server, socknotify.EventIn|socknotify.EventHangup,
			socknotify.TriggerEdge),
	}
	if _, err := port.Process(regs, nil, 0); err != nil {
		return res, err
	}
	if regs[0].Result != nil {
		return res, regs[0].Result
	}
	defer func() {
		key, e := port.Deregister(socknotify.Remove[*sock.Socket](server))
		if e == nil && key == server {
			res.Removals++
		}
		err = errors.Join(err, e)
	}()
	if err := server.Bind(sock.Loopback); err != nil {
		return res, err
	}

	send := func(ctx context.Context) error {
		return client.UDP(ctx, server.LocalAddr(), cfg.Datagrams)
	}
	err = client.Beside(ctx, send, func(ctx context.Context) error {
		return serve(ctx, port, cfg.Datagrams, &res)
	})
	return res, err
}

// serve echoes datagrams until it has received all of them.
func serve(ctx context.Context, port *socknotify.Port[*sock.Socket], datagrams int, res *Result) error {
	ready := make([]socknotify.Notification[*sock.Socket], 1)
	for res.Datagrams < datagrams {
		if _, err := port.Wait(ctx, ready); err != nil {
			return err
		}
		res.Notifications++
		server, events := ready[0].Key, ready[0].Events
		if events.Has(socknotify.EventHangup) {
			res.Hangups++
		}
		if events.Has(socknotify.EventErr) {
			if err := server.Err(); err != nil {
				return fmt.Errorf("server: %w", err)
			}
		}
		if err := drain(server, res); err != nil {
			return err
		}
	}
	return nil
}

// drain receives until a receive would block. After anything less there might be no further
// notification.
func drain(server *sock.Socket, res *Result) error {
	var datagram [2048]byte
	for {
		n, from, err := server.RecvFrom(datagram[:])
		if errors.Is(err, sock.ErrWouldBlock) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		res.Datagrams++
		res.Bytes += int64(n)
		// After the echo the client knows that this datagram is no longer in the receive buffer.
		if err := server.SendTo(datagram[:n], from); err != nil {
			return fmt.Errorf("server: echo: %w", err)
		}
	}
}
