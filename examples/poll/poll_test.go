package poll

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestRun(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, messages := range []int{1, 10, 1000} {
			res, err := Run(t.Context(), Config{Backend: backend, Messages: messages})
			if err != nil {
				t.Fatal(err)
			}
			if res.Bytes != res.ExpectedBytes || res.Removals != 1 || res.Notifications == 0 {
				t.Errorf("%d messages: %+v", messages, res)
			}
		}
	})
}

// A reset by the client ends the loop with the error of the socket, and the registration is removed.
func TestReset(t *testing.T) {
	if wine.ForgetsReset.Here() {
		t.Skip(wine.ForgetsReset)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		port, err := socknotify.New[key](socknotify.WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		listener, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		c, err := net.Dial("tcp", listener.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := accept(t.Context(), port, listener)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		c.(*net.TCPConn).SetLinger(0)
		c.Close()

		var res Result
		err = serve(t.Context(), port, conn, &res)
		if !errors.Is(err, errno.Reset) {
			t.Errorf("error %v, want a reset", err)
		}
		if res.Removals != 1 {
			t.Errorf("%d removals", res.Removals)
		}
	})
}

// A context that is done ends both sides.
func TestCancelled(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		if _, err := Run(ctx, Config{Backend: backend, Messages: 1}); !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestNoSuchBackend(t *testing.T) {
	if _, err := Run(t.Context(), Config{Backend: "abacus", Messages: 1}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}
