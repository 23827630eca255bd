// Command chat sends every line of one client to all the others.
//
// Every worker sends to every client. If the socket of a client takes no more, the worker enables its registration for
// EventOut. At that moment another worker may have dequeued a notification of the same client, and a second
// notification follows. So a worker owns a client by the field owned, not by holding a notification. The worker of the
// second notification does nothing, because the owner will enable the level again.
package main

import (
	"bytes"
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"sync"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

const maxBytes = 256 << 10 // of each buffer of a client

type server struct {
	port    *sn.Port[*client]
	clients sync.Map // of *client
}

type client struct {
	socket *sock.Socket
	line   []byte     // the incomplete last line; used by the owner
	mu     sync.Mutex // guards the fields below
	owned  bool       // a worker is receiving
	gone   bool       // removed, or about to be
	armed  sn.Events  // the filter it is enabled with
	queue  []byte     // to be sent
}

func main() {
	addr := sock.Loopback
	flag.TextVar(&addr, "addr", addr, "address to listen on")
	flag.Parse()
	listener, err := sock.ListenTCP(addr, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.LocalAddr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Println(serve(ctx, listener, ""))
}

// serve runs until the context is done, and returns the reason.
func serve(ctx context.Context, listener *sock.Socket, backend string) error {
	port, err := sn.New[*client](sn.WithBackend(backend))
	if err != nil {
		return err
	}
	defer port.Close()
	if err := port.Accept(listener, nil, 8); err != nil {
		return err
	}
	s := &server{port: port}
	var working sync.WaitGroup
	for range 4 {
		working.Go(func() { s.work(ctx) })
	}
	working.Wait()
	for c := range s.clients.Range {
		c.(*client).socket.Close()
	}
	return context.Cause(ctx)
}

func (s *server) work(ctx context.Context) {
	chunk := make([]byte, 4096)
	for nt := range s.port.All(ctx) {
		socket, err := nt.Accepted()
		switch {
		case err != nil:
			log.Println("accept:", err)
		case socket != nil:
			socket.SetWriteBuffer(32 << 10) // the system would queue megabytes
			c := &client{socket: socket}
			s.clients.Store(c, nil)
			s.send(c, []byte("welcome\n")) // from here on it receives what the others send
		case nt.Events == sn.EventRemove, nt.Kind() == sn.KindPosted:
			s.clients.Delete(nt.Key)
			nt.Key.socket.Close()
		default:
			s.receive(nt.Key, chunk)
		}
	}
}

// receive receives one chunk and sends the lines that end in it to the others.
func (s *server) receive(c *client, chunk []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owned || c.gone {
		return
	}
	c.owned, c.armed = true, 0
	c.mu.Unlock() // two workers that send to each other's clients must not deadlock
	n, err := c.socket.Recv(chunk)
	c.line = append(c.line, chunk[:n]...)
	end := bytes.LastIndexByte(c.line, '\n') + 1
	for to := range s.clients.Range {
		if to != c && end > 0 {
			s.send(to.(*client), c.line[:end])
		}
	}
	c.line = append(c.line[:0], c.line[end:]...)
	c.mu.Lock()
	c.owned = false
	c.gone = c.gone || err != nil && err != sock.ErrWouldBlock || len(c.line) > maxBytes
	s.settle(c)
}

// send queues b for any client and sends what the socket takes.
func (s *server) send(c *client, lines []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.queue = append(c.queue, lines...)
		s.settle(c)
	}
}

// settle sends what the socket takes. If no worker owns the client, it updates the registration. It runs under the
// lock.
func (s *server) settle(c *client) {
	n, err := c.socket.Send(c.queue)
	c.queue = append(c.queue[:0], c.queue[n:]...)
	if err != nil && err != sock.ErrWouldBlock || len(c.queue) > maxBytes {
		c.gone = true
		c.socket.SetLinger(0) // a reset
	}
	filter := sn.EventIn | sn.EventHangup
	if len(c.queue) > 0 {
		filter |= sn.EventOut
	}
	if c.owned || !c.gone && filter == c.armed {
		return
	}
	c.armed = filter
	regs := []sn.Registration[*client]{sn.Enable(c.socket, c, filter, sn.TriggerLevel|sn.TriggerOneShot)}
	if c.gone {
		regs[0].Op = sn.OpRemove
	}
	if s.port.Process(regs, nil, 0); regs[0].Result != nil {
		c.gone = true
		s.port.Post(c, 0) // in the place of the EventRemove, which does not come
	}
}
