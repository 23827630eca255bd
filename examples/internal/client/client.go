// Package client has the clients of the examples poll, udp and multithreaded: blocking clients on
// package net.
package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// MessageSize is the length of every message and datagram.
const MessageSize = 64

// Result is what a server counted.
type Result struct {
	Notifications int   // without removals, and messages that were posted
	Bytes         int64 // received
	ExpectedBytes int64
	Removals      int
}

// Beside runs a client and a server, and returns when both are done. If one side fails, it cancels
// the other.
func Beside(ctx context.Context, client, server func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clientDone := make(chan error, 1)
	go func() {
		err := client(ctx)
		if err != nil {
			cancel(err)
		}
		clientDone <- err
	}()
	if err := server(ctx); err != nil {
		cancel(err)
		<-clientDone
		return err
	}
	return <-clientDone
}

// TCP connects, sends messages, shuts down the sending side and waits until the server closes the
// connection. It returns early when the context is done.
func TCP(ctx context.Context, server netip.AddrPort, messages int) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", server.String())
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	conn := c.(*net.TCPConn)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	message := make([]byte, MessageSize)
	for i := range messages {
		binary.BigEndian.PutUint64(message, uint64(i))
		if _, err := conn.Write(message); err != nil {
			return fmt.Errorf("client: message %d: %w", i, err)
		}
	}
	if err := conn.CloseWrite(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return fmt.Errorf("client: waiting for the server to close: %w", err)
	}
	return nil
}

// Window bounds the datagrams that UDP has under way. They must fit into the receive buffer of the
// server together, because the system drops datagrams that do not.
const Window = 32

// lost is how long UDP waits for an echo before it fails.
const lost = 10 * time.Second

// UDP sends datagrams to a server that echoes them, at most Window ahead of the echoes, and returns
// after the last echo.
func UDP(ctx context.Context, server netip.AddrPort, datagrams int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", server.String())
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	datagram := make([]byte, MessageSize)
	echo := make([]byte, MessageSize+1)
	for sent, echoed := 0, 0; echoed < datagrams; echoed++ {
		for sent < datagrams && sent-echoed < Window {
			binary.BigEndian.PutUint64(datagram, uint64(sent))
			if _, err := conn.Write(datagram); err != nil {
				return fmt.Errorf("client: datagram %d: %w", sent, err)
			}
			sent++
		}
		if err := conn.SetReadDeadline(time.Now().Add(lost)); err != nil {
			return fmt.Errorf("client: %w", err)
		}
		n, err := conn.Read(echo)
		if err != nil {
			return fmt.Errorf("client: no echo of datagram %d: %w", echoed, err)
		}
		// The server has one socket and one goroutine, so echoes arrive in order.
		if n != MessageSize || binary.BigEndian.Uint64(echo) != uint64(echoed) {
			return errors.New("client: an echo differs from its datagram")
		}
	}
	return nil
}
