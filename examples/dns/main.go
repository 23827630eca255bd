// Command dns answers DNS queries from a small table.
//
// Its registration is edge-triggered and persistent. After a call that would have blocked, it notifies when datagrams
// arrive or answers can be sent again. It need not be enabled again, on any backend.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

func main() {
	addr := sock.Loopback
	flag.TextVar(&addr, "addr", addr, "address to listen on")
	flag.Parse()
	socket, err := sock.New(sock.NetworkOf(addr, sock.UDP4, sock.UDP6))
	if err == nil {
		err = socket.Bind(addr)
	}
	if err == nil && addr.Addr().IsUnspecified() {
		err = socket.SetPacketInfo(true) // an answer leaves from the address that was asked
	}
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", socket.LocalAddr())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Println(serve(ctx, socket, ""))
}

type server struct {
	socket  *sock.Socket
	queries [32]sock.Message
	unsent  []sock.Message // answers to the queries received last
}

// serve runs until the context is done or the socket fails, and returns the reason.
func serve(ctx context.Context, socket *sock.Socket, backend string) error {
	port, err := sn.New[*server](sn.WithBackend(backend))
	if err != nil {
		return err
	}
	defer port.Close()
	s := &server{socket: socket}
	for i := range s.queries {
		s.queries[i].Buf = make([]byte, 512)
	}
	regs := []sn.Registration[*server]{sn.Enable(socket, s, sn.EventIn|sn.EventOut, sn.TriggerEdge)}
	if port.Process(regs, nil, 0); regs[0].Result != nil {
		return regs[0].Result
	}
	for one := make([]sn.Notification[*server], 1); ; {
		if err := s.run(ctx); err != sock.ErrWouldBlock {
			return err
		}
		if _, err := port.Wait(ctx, one); err != nil {
			return err
		}
	}
}

// run answers queries until a call would block, because only then is the next arrival an edge. It runs once before the
// first notification, because datagrams that arrived before the registration are not an edge.
func (s *server) run(ctx context.Context) error {
	for ctx.Err() == nil {
		for len(s.unsent) > 0 {
			n, err := s.socket.SendBatch(s.unsent)
			if err == sock.ErrWouldBlock {
				return err
			}
			s.unsent = s.unsent[max(n, 1):] // the error is of the first message, whose address may be invalid
		}
		n, err := s.socket.RecvBatch(s.queries[:])
		if err != nil {
			return err
		}
		for _, q := range s.queries[:n] {
			if message := answer(q.Buf[:q.N]); message != nil {
				s.unsent = append(s.unsent, sock.Message{Buf: message, Addr: q.Addr, Local: q.Local})
			}
		}
	}
	return context.Cause(ctx)
}
