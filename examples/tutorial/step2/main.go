// Command step2 is an echo server of one goroutine, for any number of connections.
package main

import (
	"flag"
	"log"
	"net/netip"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

const oneShot = sn.TriggerLevel | sn.TriggerOneShot

// A client is the context of a connection, and the key of its registration.
type client struct {
	socket *sock.Socket
	unsent []byte
}

// handle handles a notification of a client, and returns its next registration.
func (c *client) handle(buf []byte) sn.Registration[*client] {
	err := c.echo(buf)
	filter := sn.EventIn
	if len(c.unsent) > 0 {
		filter = sn.EventOut // nothing more is received until the peer has received its echo
	}
	reg := sn.Enable(c.socket, c, filter, oneShot)
	if err != nil && err != sock.ErrWouldBlock { // the end of the stream, or a failure
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
	c.unsent = append([]byte(nil), out[n:]...) // nil if all was sent
	return err
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9000", "address to listen on")
	flag.Parse()
	at, err := netip.ParseAddrPort(*addr)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := sock.ListenTCP(at, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	port, err := sn.New[*client]()
	if err != nil {
		log.Fatal(err)
	}
	if err := port.Accept(listener, nil, 16); err != nil { // the key of the listener is nil
		log.Fatal(err)
	}
	log.Println("listening on", listener.LocalAddr())

	var regs []sn.Registration[*client]
	ready, buf := make([]sn.Notification[*client], 16), make([]byte, 4096)
	for {
		n, err := port.Process(regs, ready, -1) // enables what was handled, dequeues what is next
		if err != nil {
			log.Fatal(err)
		}
		for _, reg := range regs {
			if reg.Result != nil {
				log.Println(reg.Result)
				reg.Key.socket.Close()
			}
		}
		regs = regs[:0]
		for _, nt := range ready[:n] {
			switch {
			case nt.Key == nil: // of the listener
				s, err := nt.Accepted()
				if err != nil {
					log.Println(err)
					continue
				}
				s.SetNoDelay(true) // answers go out at once
				regs = append(regs, sn.Enable(s, &client{socket: s}, sn.EventIn, oneShot))
			case nt.Events == sn.EventRemove: // the last notification of this client
				nt.Key.socket.Close()
			default:
				regs = append(regs, nt.Key.handle(buf))
			}
		}
	}
}
