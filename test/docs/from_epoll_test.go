package docs_test

import (
	"testing"

	sn "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

func work(port *sn.Port[*client]) error {
	var regs []sn.Registration[*client]
	ready := make([]sn.Notification[*client], 16)
	for {
		n, err := port.Process(regs, ready, -1)
		if err != nil {
			return err
		}
		for _, reg := range regs {
			if reg.Result != nil {
				reg.Key.free() // no other worker can hold it
			}
		}
		regs = regs[:0]
		for _, nt := range ready[:n] {
			c := nt.Key
			if c == nil { // the listener's
				s, err := nt.Accepted()
				if err != nil {
					continue
				}
				c = &client{socket: s}
			}
			if nt.Events == sn.EventRemove {
				c.free() // no other worker has it
				continue
			}
			reg := sn.Enable(c.socket, c, sn.EventIn, oneShot)
			if c.serve() != nil {
				reg.Op = sn.OpRemove
			}
			regs = append(regs, reg)
		}
	}
}

func (c *client) drain() error {
	for {
		n, err := c.socket.Recv(c.buf[:])
		if err == sock.ErrWouldBlock {
			return nil // the next edge will come
		}
		if err != nil {
			return err
		}
		if err := c.handle(c.buf[:n]); err != nil {
			return err
		}
	}
}

func edges(port *sn.Port[*client]) error {
	const edge = sn.TriggerEdge | sn.TriggerPersistent
	ready := make([]sn.Notification[*client], 16)
	for {
		n, err := port.Process(nil, ready, -1)
		if err != nil {
			return err
		}
		for _, nt := range ready[:n] {
			c := nt.Key
			if c == nil {
				s, err := nt.Accepted()
				if err != nil {
					continue
				}
				c = &client{socket: s}
				if do(port, sn.Enable(s, c, sn.EventIn, edge)) != nil {
					c.free()
					continue
				}
			}
			if nt.Events == sn.EventRemove {
				c.free()
			} else if c.drain() != nil { // of a new one, too: what it has already may be no edge
				do(port, sn.Remove[*client](c.socket))
			}
		}
	}
}

// handle sends back what has come.
func (c *client) handle(b []byte) error {
	_, err := c.socket.Send(b)
	return err
}

func TestFromEpoll(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		port, listener := open(t, sn.WithBackend(backend))
		if err := port.Accept(listener, nil, 16); err != nil {
			t.Fatal(err)
		}
		stop := ends(t, port, func() error { return work(port) }, func() error { return work(port) })
		echoed(t, listener.LocalAddr().String())
		stop()
	})
}

func TestFromEpollEdges(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		port, listener := open(t, sn.WithBackend(backend), sn.WithStrictEdge())
		if err := port.Accept(listener, nil, 16); err != nil {
			t.Fatal(err)
		}
		stop := ends(t, port, func() error { return edges(port) })
		echoed(t, listener.LocalAddr().String())
		stop()
	})
}
