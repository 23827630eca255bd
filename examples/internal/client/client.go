// Package client is the other end of the samples: ordinary blocking clients on package net.
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

// TCP connects, sends messages, shuts its direction of the connection and waits for the server to
// close the other. It ends early with the context.
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

// Window is how many datagrams UDP has under way at most. Their buffers must fit into the server's
// receive buffer together, because the system drops the datagram that does not.
const Window = 32

// lost is how long UDP waits for an echo before it gives the datagram up.
const lost = 10 * time.Second

// UDP sends datagrams to a server that echoes each one, never more than Window ahead of the echoes,
// and returns when all have come back.
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
		// One socket, one server goroutine: echoes come in order.
		if n != MessageSize || binary.BigEndian.Uint64(echo) != uint64(echoed) {
			return errors.New("client: an echo is not what was sent")
		}
	}
	return nil
}
