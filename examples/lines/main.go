// Command lines is a server of a line protocol: a small store, with a command that takes time.
//
//	SET key value    OK
//	GET key          the value, or NONE
//	WAIT duration    OK after the duration; other connections are served, and later commands of this one wait
//	QUIT             BYE
//
// A line can arrive in pieces, and many lines together; the input of package server keeps the beginning of a line.
package main

import (
	"context"
	"flag"
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

type conn = *server.Conn[struct{}]

// A store is the handler.
type store struct{ values sync.Map }

func (s *store) Open(c conn) error { return nil }

func (s *store) Data(c conn, buf []byte) error {
	for {
		line, err := c.Line(maxLine)
		if err != nil {
			return err
		}
		verb, args, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		answer := "ERROR what?"
		switch verb {
		case "SET":
			key, value, _ := strings.Cut(args, " ")
			s.values.Store(key, value)
			answer = "OK"
		case "GET":
			answer = "NONE"
			if value, ok := s.values.Load(args); ok {
				answer = value.(string)
			}
		case "WAIT":
			d, err := time.ParseDuration(args)
			if err == nil {
				c.Pause() // before the goroutine is started
				go wait(c, d)
				return nil
			}
			answer = "ERROR what duration?"
		case "QUIT":
			c.Write([]byte("BYE\n"))
			return c.Close() // when the answer is sent
		}
		if _, err := c.Write(append(append(buf[:0], answer...), '\n')); err != nil {
			return err
		}
	}
}

func (s *store) Close(c conn, cause error) {}

// wait blocks, in a goroutine of its own and not in the handler. The connection is paused for it.
func wait(c conn, d time.Duration) {
	time.Sleep(d)
	c.Write([]byte("OK\n"))
	c.Resume() // Data is called, and continues with the lines that have arrived
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
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
	s := &server.Server[struct{}]{Handler: &store{}, Backend: backend, IdleTimeout: 5 * time.Minute}
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
