package main

import (
	"io"
	"sync/atomic"

	"github.com/socknotify/socknotify/server"
)

// A tally counts what one connection did. Only its handler counts, so there is no lock.
type tally struct{ messages, bytes int64 }

type conn = *server.Conn[tally]

// totals are the sums over all closed connections.
type totals struct{ connections, messages, bytes atomic.Int64 }

func (t *totals) Open(c conn) error { return nil }

func (t *totals) Close(c conn, cause error) {
	t.connections.Add(1)
	t.messages.Add(c.Value.messages)
	t.bytes.Add(c.Value.bytes)
}

// A service is one of the subcommands of serve.
type service struct {
	name, short, long string
	handler           func(*totals) server.Handler[tally]
}

var services = []service{
	{"echo", "Send back what comes in", "Send back what comes in (RFC 862); messages are receives.",
		func(t *totals) server.Handler[tally] { return &echo{t} }},
	{"discard", "Receive and send nothing", "Receive and send nothing (RFC 863); messages are receives.",
		func(t *totals) server.Handler[tally] { return &discard{t} }},
	{"chargen", "Send characters without end", "Send lines of characters for as long as they are taken (RFC 864); messages are writes.",
		func(t *totals) server.Handler[tally] { return &chargen{t, characters()} }},
}

type echo struct{ *totals }

func (*echo) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	// Data is not called while much is queued, so Write takes all of it.
	n, err = c.Write(buf[:n])
	c.Value.messages++
	c.Value.bytes += int64(n)
	return err
}

type discard struct{ *totals }

func (*discard) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if n > 0 {
		c.Value.messages++
		c.Value.bytes += int64(n)
	}
	return err
}

type chargen struct {
	*totals
	characters []byte
}

func (*chargen) Open(c conn) error {
	c.WantWritable()
	return nil
}

// Data discards what it receives.
func (*chargen) Data(c conn, buf []byte) error {
	_, err := c.Read(buf)
	if err == io.EOF {
		return c.Abort() // Close would send all that is queued first
	}
	return err
}

// Writable writes once in each call, so that other connections are served in between.
func (g *chargen) Writable(c conn) error {
	n, err := c.Write(g.characters[c.Value.bytes%pattern:][:pattern])
	c.Value.messages++
	c.Value.bytes += int64(n)
	if err == server.ErrQueueFull {
		return nil // Writable is called when there is room
	}
	c.WantWritable()
	return err
}

const (
	lineLength = 72
	letters    = 95                         // from space to tilde
	pattern    = letters * (lineLength + 2) // the number of bytes after which it repeats
)

// characters returns the pattern twice, so that a whole pattern follows each of its bytes.
func characters() (b []byte) {
	for line := range 2 * letters {
		for i := range lineLength {
			b = append(b, byte(' '+(line+i)%letters))
		}
		b = append(b, "\r\n"...)
	}
	return b
}
