// Command step3 is an echo server with many workers that reuses the memory of its clients.
package main

import (
	"flag"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

const oneShot = sn.TriggerLevel | sn.TriggerOneShot

// A client belongs to the worker that holds its notification, so it needs no lock.
type client struct {
	socket *sock.Socket
	unsent []byte
}

func (c *client) handle(buf []byte) sn.Registration[*client] {
	err := c.echo(buf)
	filter := sn.EventIn
	if len(c.unsent) > 0 {
		filter = sn.EventOut
	}
	reg := sn.Enable(c.socket, c, filter, oneShot)
	if err != nil && err != sock.ErrWouldBlock {
		reg.Op = sn.OpRemove
	}
	return reg
}

func (c *client) echo(buf []byte) error {
	out := c.unsent
	if len(out) == 0 {
		n, err := c.socket.Recv(buf)
		if err != nil {
			return err
		}
		out = buf[:n]
	}
	n, err := c.socket.Send(out)
	c.unsent = append([]byte(nil), out[n:]...)
	return err
}

// A server is the state that the workers share.
type server struct {
	port      *sn.Port[*client]
	clients   sync.Pool // of clients that can be reused
	made, had atomic.Int64
}

func (s *server) newClient(socket *sock.Socket) *client {
	c := s.clients.Get().(*client)
	c.socket = socket
	socket.SetNoDelay(true)
	s.had.Add(1)
	return c
}

// free frees a client after its last notification. Another connection may use it at once.
func (s *server) free(c *client) {
	c.socket.Close()
	*c = client{}
	s.clients.Put(c)
}

// work serves until the port is closed.
func (s *server) work() {
	var regs []sn.Registration[*client]
	ready, buf := make([]sn.Notification[*client], 16), make([]byte, 4096)
	for {
		n, err := s.port.Process(regs, ready, -1)
		for _, reg := range regs {
			if reg.Result != nil { // no other worker can hold a notification of it
				log.Println(reg.Result)
				s.free(reg.Key)
			}
		}
		if err != nil {
			return
		}
		regs = regs[:0]
		for _, nt := range ready[:n] {
			switch {
			case nt.Key == nil:
				socket, err := nt.Accepted()
				if err != nil {
					log.Println(err)
					continue
				}
				regs = append(regs, sn.Enable(socket, s.newClient(socket), sn.EventIn, oneShot))
			case nt.Events == sn.EventRemove:
				s.free(nt.Key)
			default:
				regs = append(regs, nt.Key.handle(buf))
			}
		}
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	workers := flag.Int("workers", 2*runtime.GOMAXPROCS(0), "goroutines that serve")
	flag.Parse()
	at, err := netip.ParseAddrPort(*addr)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := sock.ListenTCP(at, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	port, err := sn.New[*client]()
	if err != nil {
		log.Fatal(err)
	}
	s := &server{port: port}
	s.clients.New = func() any { s.made.Add(1); return new(client) }
	if err := port.Accept(listener, nil, 16); err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.LocalAddr())
	var working sync.WaitGroup
	for range *workers {
		working.Go(s.work)
	}

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	<-interrupted
	port.Close() // wakes the workers, which return
	working.Wait()
	stats := port.Stats()
	log.Printf("%d connections with %d clients made, %d notifications, %d re-arms of which %d cost no system call",
		s.had.Load(), s.made.Load(), stats.Notifications, stats.Rearms+stats.FastEnables, stats.FastEnables)
}
