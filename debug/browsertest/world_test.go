package browsertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/debug"
	"github.com/socknotify/socknotify/internal/echo"
	"github.com/socknotify/socknotify/internal/load"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	busy   = 40   // connections that are under load
	parked = 5000 // registrations of a second port, which never hear anything
)

// A world is an echo server under load and a port with thousands of idle sockets, on one page.
type world struct {
	url  string         // of the page
	echo netip.AddrPort // of the server
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{}
	listening := make(chan netip.AddrPort, 1)
	mounted := make(chan debug.Option, 1)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := echo.Run(ctx, echo.Config{
			Addr: sock.Loopback, Workers: 3,
			Listening: func(a netip.AddrPort) { listening <- a },
			Watch:     func(port debug.Option) { mounted <- port },
		})
		done <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	page := debug.New(<-mounted, debug.Port("parked", park(t)))
	t.Cleanup(page.Close)
	w.echo = <-listening

	mux := http.NewServeMux()
	mux.Handle("/debug/socknotify/", page)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL + "/debug/socknotify/"

	loaded := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := load.Run(ctx, load.Config{
			Addr: w.echo.String(), Connections: busy, Rate: 500, Size: 64, Depth: 1, Workers: 1,
			Duration: time.Hour, Timeout: time.Minute,
		}, nil)
		loaded <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-loaded; err != nil {
			t.Error(err)
		}
	})
	return w
}

// park registers many sockets with a port of their own.
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
		regs := []socknotify.Registration[int]{socknotify.EnableSock(s, 100000+i, socknotify.EventIn, socknotify.TriggerLevel|socknotify.TriggerOneShot)}
		if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
			t.Fatal(err, regs[0].Result)
		}
	}
	return p
}
