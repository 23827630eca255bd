package browsertest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	busy   = 40   // connections under load
	parked = 5000 // idle registrations of a second port
)

// A world is a page that shows an echo server under load and a port with thousands of idle sockets.
type world struct {
	url    string         // address of the page
	echo   netip.AddrPort // address of the server
	server *server.Server[struct{}]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.echo = l.LocalAddr()
	served := make(chan error, 1)
	s := &server.Server[struct{}]{Handler: echo{}, Workers: 3, Shards: 1, TimeCalls: true} // the page shows one port at a time
	w.server = s
	page := debug.New(debug.Server("echo", s), debug.Port("parked", park(t)))
	t.Cleanup(page.Close)
	go func() { served <- s.ServeSocket(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != server.ErrServerClosed {
			t.Error(err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", page)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	w.url = web.URL + "/debug/socknotify/"

	ctx, cancel := context.WithCancel(context.Background())
	var loading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		loading.Wait()
	})
	for range busy {
		conn, err := net.Dial("tcp", w.echo.String())
		if err != nil {
			t.Fatal(err)
		}
		loading.Go(func() { converse(t, ctx, conn) })
	}
	return w
}

// converse sends a request every 80 ms and reads the answer, until ctx is done.
func converse(t *testing.T, ctx context.Context, conn net.Conn) {
	defer conn.Close()
	request, answer := make([]byte, 64), make([]byte, 64)
	for ctx.Err() == nil {
		_, err := conn.Write(request)
		if err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if err != nil {
			t.Error(err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(80 * time.Millisecond):
		}
	}
}

// An echo is a handler that sends received bytes back.
type echo struct{}

func (echo) Open(*server.Conn[struct{}]) error   { return nil }
func (echo) Close(*server.Conn[struct{}], error) {}

func (echo) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	_, err = c.Write(buf[:n])
	return err
}

// park registers many sockets with a new port.
func park(t *testing.T) *socknotify.Port[int] {
	t.Helper()
	p, err := socknotify.New[int]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	for i := range parked {
		s, err := sock.New(sock.UDP4)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		regs := []socknotify.Registration[int]{socknotify.Enable(s, 100000+i, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot)}
		if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
			t.Fatal(err, regs[0].Result)
		}
	}
	return p
}
