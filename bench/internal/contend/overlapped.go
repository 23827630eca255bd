package contend

import (
	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// An opConn is a connection with one operation in flight: a receive, or the send of what came.
type opConn struct {
	sock    *sock.Socket
	op      socknotify.Overlapped[*opConn]
	sending bool
	buf     [4096]byte
}

// serveOverlapped is overlapped operations: a worker for each core on one port.
func serveOverlapped(p param.Params, backend string, ready func(string)) error {
	port, err := socknotify.New[*opConn](socknotify.WithBackend(backend))
	if err != nil {
		return err
	}
	defer port.Close()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := port.Accept(l, nil, 64); err != nil {
		return err
	}
	ready(l.LocalAddr().String())
	failed := make(chan error)
	for range max(p.Cores, 1) {
		go func() { failed <- overlappedWorker(port) }()
	}
	return <-failed
}

func overlappedWorker(port *socknotify.Port[*opConn]) error {
	out := make([]socknotify.Notification[*opConn], 128)
	for {
		n, err := port.Wait(out, -1)
		if err != nil {
			return err
		}
		for i := range out[:n] {
			c, err := opened(&out[i])
			if err != nil {
				return err
			}
			if c.step(port) != nil {
				c.sock.Close()
			}
		}
	}
}

// opened is the connection of a completion, a new one where that is an accept's.
func opened(nt *socknotify.Notification[*opConn]) (*opConn, error) {
	if nt.Key != nil {
		return nt.Key, nil
	}
	s, err := nt.Accepted()
	if err != nil {
		return nil, err
	}
	s.SetNoDelay(true)
	return &opConn{sock: s, sending: true}, nil
}

// step starts what comes after the operation that has completed. An error ends the connection.
func (c *opConn) step(port *socknotify.Port[*opConn]) error {
	n, err := c.op.Result()
	if err != nil {
		return err
	}
	c.sending = !c.sending
	if c.sending {
		return port.Send(c.sock, c, c.buf[:n], &c.op)
	}
	return port.Recv(c.sock, c, c.buf[:], &c.op)
}
