package interop

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/soheilhy/cmux"
	"golang.org/x/net/netutil"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server"
)

// answers is a handler of package server.
type answers struct{}

func (answers) Open(c *server.Conn[int]) error { return nil }

func (answers) Data(c *server.Conn[int], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

func (answers) Close(c *server.Conn[int], cause error) {}

// netutil.LimitListener limits the connections of a server.Server.
func TestServerLimitListener(t *testing.T) {
	const most = 3
	ln := netutil.LimitListener(listen(t), most)
	s := &server.Server[int]{Handler: answers{}}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	var conns []net.Conn
	for range 2 * most {
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(timeout)))
		_, err = io.WriteString(c, "echo")
		must(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns { // each begins when another has ended
		_, err := io.ReadFull(c, make([]byte, 4))
		must(t, err)
		if n := s.Stats().Conns; n > most {
			t.Errorf("%d connections at a time", n)
		}
		c.Close()
	}
	must(t, s.Shutdown(t.Context()))
	if err := <-served; err != server.ErrServerClosed {
		t.Error(err)
	}
}

// A server.Server refuses listeners whose connections change what is read, and names their types.
func TestServerRefusesOthers(t *testing.T) {
	mux := cmux.New(listen(t))
	any := mux.Match(cmux.Any())
	go mux.Serve()
	defer mux.Close()
	for want, ln := range map[string]net.Listener{
		"*proxyproto.Conn": &proxyproto.Listener{Listener: listen(t)},
		"*cmux.MuxConn":    any,
	} {
		s := &server.Server[int]{Handler: answers{}}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		c, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		_, err = io.WriteString(c, "text")
		must(t, err)
		if err := <-served; !errors.Is(err, socknotify.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error about %s", err, want)
		}
		c.Close()
		must(t, s.Shutdown(t.Context()))
	}
}
