// Package poll is the first example: a port in the place of poll(2).
//
// One goroutine serves one TCP connection. The registration is level-triggered and persistent. So
// it is made once, and notifies as long as there is something to receive, as poll would return
// again and again. The loop ends when the client hangs up. Then the registration is removed, and
// its last notification awaited, before the socket is closed.
package poll

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/examples/internal/client"
	"github.com/socknotify/socknotify/sock"
)

// Config says how much the client sends.
type Config struct {
	Backend  string // empty: the default
	Messages int
}

// Result is what the server counted. It wants one removal.
type Result = client.Result

// The key of a registration may be any comparable value. A single connection needs no context, so
// the key is the socket's handle.
type key = uintptr

// Run starts a server and its client, and returns when both are done.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	res.ExpectedBytes = int64(cfg.Messages) * client.MessageSize

	port, err := socknotify.New[key](socknotify.WithBackend(cfg.Backend))
	if err != nil {
		return res, err
	}
	defer port.Close()
	listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 1})
	if err != nil {
		return res, err
	}
	defer listener.Close()

	send := func(ctx context.Context) error {
		return client.TCP(ctx, listener.LocalAddr(), cfg.Messages)
	}
	err = client.Beside(ctx, send, func(ctx context.Context) error {
		conn, err := accept(ctx, port, listener)
		if err != nil {
			return err
		}
		defer conn.Close()
		return serve(ctx, port, conn, &res)
	})
	return res, err
}

// accept waits for the one connection, which is itself a notification.
func accept(ctx context.Context, port *socknotify.Port[key], listener *sock.Socket) (*sock.Socket, error) {
	if err := port.Accept(listener, listener.Handle(), 1); err != nil {
		return nil, err
	}
	defer port.Deregister(socknotify.Remove[key](listener))
	ready := make([]socknotify.Notification[key], 1)
	if _, err := port.Wait(ctx, ready); err != nil {
		return nil, err
	}
	return ready[0].Accepted()
}

// serve receives until the client hangs up, then removes the registration.
func serve(ctx context.Context, port *socknotify.Port[key], conn *sock.Socket, res *Result) (err error) {
	regs := []socknotify.Registration[key]{socknotify.Enable(conn, conn.Handle(),
		socknotify.EventIn|socknotify.EventHangup, socknotify.TriggerLevel|socknotify.TriggerPersistent)}
	// Without entries Process only registers. Its error is about the call; each registration has
	// a Result of its own.
	if _, err := port.Process(regs, nil, 0); err != nil {
		return err
	}
	if regs[0].Result != nil {
		return regs[0].Result
	}

	// The registration is removed before the caller closes the socket. Deregister returns the key
	// instead of an EventRemove.
	defer func() {
		k, e := port.Deregister(socknotify.Remove[key](conn))
		if e == nil && k == conn.Handle() {
			res.Removals++
		}
		err = errors.Join(err, e)
	}()

	ready := make([]socknotify.Notification[key], 1)
	for {
		if _, err := port.Wait(ctx, ready); err != nil {
			return err
		}
		res.Notifications++
		events := ready[0].Events

		// EventErr is notified with any filter. Err returns the error once.
		if events.Has(socknotify.EventErr) {
			if e := conn.Err(); e != nil {
				return fmt.Errorf("connection: %w", e)
			}
		}
		// After a hang-up there may be data to receive. The connection has ended when the end of
		// the stream is received.
		ended, err := receive(conn, events.Has(socknotify.EventHangup), res)
		if ended || err != nil {
			return err
		}
	}
}

// receive receives one chunk. The level notifies again if there is more. After a hang-up it
// receives everything.
func receive(conn *sock.Socket, everything bool, res *Result) (ended bool, err error) {
	var chunk [512]byte
	for {
		n, err := conn.Recv(chunk[:])
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case errors.Is(err, sock.ErrWouldBlock):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("connection: %w", err)
		}
		res.Bytes += int64(n)
		if !everything {
			return false, nil
		}
	}
}
