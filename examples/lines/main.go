// Command lines is a server of a line protocol: a small store, with a command that takes time.
//
//	SET key value    OK
//	GET key          the value, or NONE
//	WAIT duration    OK after the duration; other connections are served, and later commands of this one wait
//	QUIT             BYE
//
// A line can arrive in pieces, and many lines together. The beginning of a line is kept in the state of the connection.
// Complete lines are answered with one write.
package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/server"
)

const maxLine = 4096

// A client is the state of a connection. The calls of its handler are sequential, so it has no lock.
type client struct{ rest []byte }

type conn = *server.Conn[client]

// A store is the handler.
type store struct{ values sync.Map }

func (s *store) Open(c conn) error { return nil }

func (s *store) Data(c conn, buf []byte) error {
	n, err := c.Read(buf)
	waiting, failed := s.answer(c, append(c.State.rest, buf[:n]...))
	switch {
	case failed != nil:
		return failed
	case waiting:
		return nil // the next Read returns the error again
	}
	return err
}

func (s *store) Close(c conn, cause error) {}

var errTooLong = errors.New("line too long")

// answer answers the complete lines, up to one that has to wait, and keeps the rest.
func (s *store) answer(c conn, lines []byte) (waiting bool, err error) {
	var out []byte
	for !waiting {
		line, rest, complete := bytes.Cut(lines, []byte("\n"))
		if !complete {
			break
		}
		lines = rest
		verb, args, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		switch verb {
		case "SET":
			key, value, _ := strings.Cut(args, " ")
			s.values.Store(key, value)
			out = append(out, "OK\n"...)
		case "GET":
			value, ok := s.values.Load(args)
			if !ok {
				value = "NONE"
			}
			out = append(append(out, value.(string)...), '\n')
		case "WAIT":
			d, err := time.ParseDuration(args)
			if err != nil {
				out = append(out, "ERROR what duration?\n"...)
				continue
			}
			c.Pause()
			waiting = true
			defer func() { go wait(c, d) }() // after the answers before it are written
		case "QUIT":
			if _, err := c.Write(append(out, "BYE\n"...)); err != nil {
				return false, err
			}
			return false, io.EOF // closes the connection after the answer is sent
		default:
			out = append(out, "ERROR what?\n"...)
		}
	}
	if len(lines) > maxLine && !waiting {
		return false, errTooLong
	}
	c.State.rest = nil
	if len(lines) > 0 {
		c.State.rest = bytes.Clone(lines) // the buffer belongs to the worker
	}
	_, err = c.Write(out)
	return waiting, err
}

// wait blocks, in a goroutine of its own and not in the handler. The connection is paused for it.
func wait(c conn, d time.Duration) {
	time.Sleep(d)
	c.Write([]byte("OK\n"))
	c.Resume() // Data is called, and continues with the lines that have arrived
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", l.Addr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, l, ""); err != nil {
		log.Fatal(err)
	}
}

// serve serves until the context is done, and then sends the answers that are queued.
func serve(ctx context.Context, l net.Listener, backend string) error {
	s := &server.Server[client]{Handler: &store{}, Backend: backend, IdleTimeout: 5 * time.Minute}
	stopped := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- s.Shutdown(limit)
	})
	if err := s.Serve(l); err != server.ErrServerClosed {
		return err
	}
	return <-stopped
}
