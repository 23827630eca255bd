// Command proxy connects every client to a target and copies both ways, in one goroutine without locks.
// The bytes received on one side are sent on the other before more is received.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

type proxy struct {
	port   *sn.Port[*half]
	target netip.AddrPort
	open   map[*half]bool
	chunk  [32 << 10]byte
}

// A half is one socket of a pair.
type half struct {
	socket            *sock.Socket
	peer              *half
	connecting, ended bool   // connect not done; end of stream received
	rest              []byte // received, and not sent to the peer yet
}

func main() {
	addr, target := sock.Loopback, netip.MustParseAddrPort("127.0.0.1:80")
	flag.TextVar(&addr, "addr", addr, "address to listen on")
	flag.TextVar(&target, "target", target, "address to connect to")
	flag.Parse()
	listener, err := sock.ListenTCP(addr, sock.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	log.Println("listening on", listener.LocalAddr(), "for", target)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Println(serve(ctx, listener, target, ""))
}

// serve runs until the context is done, and returns the reason.
func serve(ctx context.Context, listener *sock.Socket, target netip.AddrPort, backend string) error {
	port, err := sn.New[*half](sn.WithBackend(backend))
	if err != nil {
		return err
	}
	defer port.Close()
	if err := port.Accept(listener, nil, 8); err != nil {
		return err
	}
	p := &proxy{port: port, target: target, open: make(map[*half]bool)}
	for nt := range port.All(ctx) {
		client, err := nt.Accepted()
		switch {
		case err != nil:
			log.Println("accept:", err)
		case client != nil:
			p.connect(client)
		case p.open[nt.Key]: // notifications after the close are ignored
			p.settle(nt.Key, p.handle(nt.Key, nt.Events))
		}
	}
	for h := range p.open {
		h.socket.Close()
	}
	return context.Cause(ctx)
}

func (p *proxy) connect(client *sock.Socket) {
	target, err := sock.New(sock.NetworkOf(p.target, sock.TCP4, sock.TCP6))
	if err != nil {
		log.Println(err)
		client.Close()
		return
	}
	client.SetNoDelay(true) // chunks are sent without delay
	target.SetNoDelay(true)
	c, t := &half{socket: client}, &half{socket: target, connecting: true}
	c.peer, t.peer = t, c
	p.open[c], p.open[t] = true, true
	p.settle(t, target.Connect(p.target))
}

func (p *proxy) handle(h *half, events sn.Events) (err error) {
	if events.Has(sn.EventErr) {
		return h.socket.Err()
	}
	if events.Has(sn.EventIn) {
		err = p.forward(h)
	}
	if err == nil && events.Has(sn.EventOut) {
		h.connecting = false
		err = p.forward(h.peer)
	}
	return err
}

// forward sends the rest of the last chunk to the peer, or else receives a chunk and sends it.
func (p *proxy) forward(h *half) error {
	if len(h.rest) == 0 {
		n, err := h.socket.Recv(p.chunk[:])
		if h.ended = err == io.EOF; h.ended {
			return h.peer.socket.Shutdown(sock.ShutWrite)
		}
		if err != nil {
			return err
		}
		h.rest = p.chunk[:n]
	}
	n, err := h.peer.socket.Send(h.rest)
	h.rest = bytes.Clone(h.rest[n:])
	return err
}

// settle updates the registrations of both sides. A pair that has ended is closed, one that failed is reset.
func (p *proxy) settle(h *half, err error) {
	regs := []sn.Registration[*half]{h.enable(), h.peer.enable()}
	if p.port.Process(regs, nil, 0); err == nil || err == sock.ErrWouldBlock {
		err = errors.Join(regs[0].Result, regs[1].Result)
	}
	if err != nil || h.ended && h.peer.ended {
		for _, h := range []*half{h, h.peer} {
			if err != nil {
				h.socket.SetLinger(0)
			}
			h.socket.Close() // which ends the registration
			delete(p.open, h)
		}
	}
}

func (h *half) enable() sn.Registration[*half] {
	filter := sn.EventNone // errors only
	if len(h.rest) == 0 && !h.ended && !h.connecting && !h.peer.connecting {
		filter |= sn.EventIn
	}
	if len(h.peer.rest) > 0 || h.connecting {
		filter |= sn.EventOut
	}
	return sn.Enable(h.socket, h, filter, sn.TriggerLevel|sn.TriggerOneShot)
}
