package contend

import (
	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// An opConn is a connection with one operation in flight: a receive, or the send of the received bytes.
type opConn struct {
	sock *sock.Socket
	op   overlapped.Op[*opConn]
	buf  []byte // the bytes being sent
}

// serveOverlapped is a server on overlapped operations: a worker for each core on one port.
func serveOverlapped(p Params, backend string, ready func(string)) error {
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
	failed, pool := make(chan error), overlapped.NewBuffers(4096)
	for range max(p.Cores, 1) {
		go func() { failed <- overlappedWorker(port, pool) }()
	}
	return <-failed
}

// overlappedWorker starts the next operations in the call that dequeues. Receives that wait have no buffer.
func overlappedWorker(port *socknotify.Port[*opConn], pool *overlapped.Buffers) error {
	out := make([]socknotify.Notification[*opConn], 256)
	ops, of := make([]overlapped.Request[*opConn], 0, len(out)), make([]*opConn, 0, len(out))
	for {
		n, err := overlapped.Process(port, ops, out, -1)
		for i := range ops {
			if ops[i].Result != nil {
				of[i].sock.Close()
			}
		}
		if err != nil {
			return err
		}
		ops, of = ops[:0], of[:0]
		for i := range out[:n] {
			c, err := opened(&out[i])
			if err != nil {
				return err
			}
			if _, err := c.op.Result(); err != nil {
				c.sock.Close()
				continue
			}
			ops, of = append(ops, c.next(pool)), append(of, c)
		}
	}
}

// opened returns the connection of a completion. For an accept it is a new one.
func opened(nt *socknotify.Notification[*opConn]) (*opConn, error) {
	if nt.Key != nil {
		return nt.Key, nil
	}
	s, err := nt.Accepted()
	if err != nil {
		return nil, err
	}
	s.SetNoDelay(true)
	return &opConn{sock: s}, nil
}

// next returns the operation that follows the completed one. On a new connection it is a receive.
func (c *opConn) next(pool *overlapped.Buffers) overlapped.Request[*opConn] {
	if got := c.op.Buffer(); c.buf == nil && got != nil {
		c.buf = got
		return overlapped.SendRequest(c.sock, c, c.buf, &c.op)
	}
	pool.Put(c.buf)
	c.buf = nil
	return overlapped.RecvPooledRequest(c.sock, c, pool, &c.op)
}
