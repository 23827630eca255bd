package browser

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

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	busy   = 40   // connections under load
	parked = 5000 // idle registrations of a second port
	many   = 1000 // connections of the test of figures
)

// A world is an echo server with a page that shows it.
type world struct {
	url    string         // address of the page
	echo   netip.AddrPort // address of the server
	server *server.Server[struct{}]
	stop   func() // ends all of it; the test's end does so too
}

// newWorld starts a world. The page has an address, and may show more than the server.
func newWorld(t *testing.T, addr string, more ...debug.Option) *world {
	t.Helper()
	l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server.Server[struct{}]{Handler: echo{}, Workers: 3, Shards: 1, TimeCalls: true} // the page shows one port at a time
	page := debug.New(append(more, debug.Server("echo", s))...)
	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", page)
	web := &httptest.Server{Listener: pages, Config: &http.Server{Handler: mux}}
	web.Start()
	served := make(chan error, 1)
	go func() { served <- s.ServeSocket(l) }()
	w := &world{url: web.URL + "/debug/socknotify/", echo: l.LocalAddr(), server: s}
	w.stop = sync.OnceFunc(func() {
		page.Close()
		web.Close()
		s.Close()
		if err := <-served; err != server.ErrServerClosed {
			t.Error(err)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// A load is connections that send requests and read the answers.
type load struct {
	conns    []net.Conn
	requests []int // of each connection, after rest
	// rest ends the requests. Then all answers have arrived. stop closes the connections too, which the test's end also does.
	rest, stop func()
}

// newLoad connects n clients. Each sends a request of size bytes, reads the answer, and pauses.
func newLoad(t *testing.T, w *world, n int, pause time.Duration) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var loading sync.WaitGroup
	l := &load{requests: make([]int, n)}
	l.rest = func() {
		cancel()
		loading.Wait()
	}
	l.stop = func() {
		l.rest()
		for _, c := range l.conns {
			c.Close()
		}
	}
	t.Cleanup(l.stop)
	for i := range n {
		conn, err := net.Dial("tcp", w.echo.String())
		if err != nil {
			t.Fatal(err)
		}
		l.conns = append(l.conns, conn)
		loading.Go(func() { l.requests[i] = converse(t, ctx, conn, pause) })
	}
	return l
}

// size is the number of bytes of a request.
const size = 64

// converse sends requests until ctx is done, and returns their number.
func converse(t *testing.T, ctx context.Context, conn net.Conn, pause time.Duration) (requests int) {
	request, answer := make([]byte, size), make([]byte, size)
	for ; ctx.Err() == nil; requests++ {
		_, err := conn.Write(request)
		if err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if err != nil {
			t.Error(err)
			return requests
		}
		await.Pause(pause)
	}
	return requests
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

// parkMany registers many sockets with a new port.
func parkMany(t *testing.T) *socknotify.Port[int] {
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
