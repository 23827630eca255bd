// Command websocket is a chat for browsers, whose connections are parked while no message is sent.
//
// park.HTTPServer serves the page, and package websocket the connections. A message on one connection is sent to all,
// including the sender.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/socknotify/socknotify/examples/websocket/chat"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "address to listen on")
	ping := flag.Duration("ping", 30*time.Second, "how long a connection may be silent before it is asked whether it is alive")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *ping); err != nil {
		log.Fatal(err)
	}
}

// run serves until the context is done.
func run(ctx context.Context, addr string, ping time.Duration) error {
	s, err := chat.New(ping)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		s.Close(ctx)
		return err
	}
	log.Printf("chat on http://%v/", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(listener) }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if failed := s.Close(last); err == nil {
		err = failed
	}
	return err
}
