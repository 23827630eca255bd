package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/socknotify/socknotify/sock"
)

var (
	errNotCalled = errors.New("server: Hijack is for the handler's calls")
	errQueued    = errors.New("server: Hijack with bytes queued")
)

// Hijack gives the connection to a goroutine that must block: the net.Conn's calls wait as usual. It is for
// the handler's calls of this connection, none of which comes after it until [Conn.Resume] gives the
// connection back; Close comes when the net.Conn, or the Conn, is closed. Bytes that are queued make it
// fail.
//
// Each way costs a dozen system calls. Where the request alone must wait, and not its bytes, Pause is
// cheaper.
func (c *Conn[S]) Hijack() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return nil, errHijacked
	case word&(wClosing|wAborting|wDead) != 0:
		return nil, net.ErrClosed
	case word&wOwned == 0:
		return nil, errNotCalled
	case word&wOut != 0:
		return nil, errQueued
	case c.wrapped:
		return nil, fmt.Errorf("server: Hijack: %w", errors.ErrUnsupported)
	}
	nc, err := sock.Attach(c.socket())
	if err != nil {
		return nil, err
	}
	c.held.Release() // it is closed now
	c.more().hijacked = nc
	c.word.Or(wHijacked | wUnheld)
	return &hijacked{nc, c}, nil
}

// A hijacked is the connection of Hijack, whose closing the server must know of.
type hijacked struct {
	net.Conn
	conn interface{ Close() error }
}

func (h *hijacked) Close() error { return h.conn.Close() }

// NetConn is the connection of package net, such as a *net.TCPConn. It is to be closed by the one that it
// is in.
func (h *hijacked) NetConn() net.Conn { return h.Conn }

// Resume gives a connection back to the server after Pause or Hijack. Data is called then, even if nothing
// has come meanwhile, so that a handler can go on with what it has received before. The net.Conn of Hijack
// is closed; nobody may be reading from that any more. On any other connection it does nothing.
func (c *Conn[S]) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.server()
	word := c.word.Load()
	switch {
	case word&(wClosing|wAborting|wDead) != 0:
		return net.ErrClosed
	case word&wHijacked != 0:
		socket, err := sock.Detach(c.extra.hijacked, sock.MakeNonblocking)
		if err != nil {
			return err
		}
		if s.isClosing() {
			socket.Shutdown(sock.ShutRead)
		}
		if c.held, err = socket.Hold(); err != nil {
			return err
		}
		c.word.And(^uint32(wUnheld))
		c.extra.hijacked = nil
		c.spare()
		c.touch(uint32(s.wheel.Now()))
		c.letGoHijacked(wResumed)
	case word&wPaused != 0:
		c.touch(uint32(s.wheel.Now()))
		c.word.And(^uint32(wPaused))
		c.set(wResumed)
	}
	return nil
}

// letGoHijacked ends a hijack: the owner goes on, or a worker if the owner has let go already. The lock is
// held.
func (c *Conn[S]) letGoHijacked(bits uint32) {
	for {
		word := c.word.Load()
		next := word&^(wHijacked|wAway|wPaused) | bits
		if word&wAway != 0 {
			next &^= wOwned
		}
		if c.word.CompareAndSwap(word, next) {
			if word&wAway != 0 {
				c.wake()
			}
			return
		}
	}
}
