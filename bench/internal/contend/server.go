package contend

import (
	snserver "github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

// echoed is a handler of package server without state.
type echoed struct{}

func (*echoed) Open(*snserver.Conn[struct{}]) error   { return nil }
func (*echoed) Close(*snserver.Conn[struct{}], error) {}

func (*echoed) Data(c *snserver.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	_, err = c.Write(buf[:n])
	return err
}

// serveServer is package server: a worker with a port for each core.
func serveServer(p Params, backend string, ready func(string)) error {
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		return err
	}
	ready(l.LocalAddr().String())
	s := &snserver.Server[struct{}]{Handler: new(echoed), Workers: p.Cores, Backend: backend}
	return s.ServeSocket(l)
}
