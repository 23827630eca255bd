package multithreaded

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
		for _, cfg := range []Config{
			{Workers: 1, Clients: 1, Messages: 1},
			{Workers: 1, Clients: 20, Messages: 50},
			{Workers: 40, Clients: 2, Messages: 50},
			{Workers: DefaultWorkers, Clients: DefaultClients, Messages: 50},
		} {
			cfg.Backend = backend
			res, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if res.Bytes != res.ExpectedBytes || res.Removals != cfg.Clients {
				t.Errorf("%+v: %+v", cfg, res)
			}
			total := 0
			for _, n := range res.PerWorker {
				total += n
			}
			if len(res.PerWorker) != cfg.Workers || total != res.Notifications || total < 2*cfg.Clients {
				t.Errorf("%+v: %+v", cfg, res)
			}
		}
	})
}

// A context that is done ends the workers and the clients.
func TestCancelled(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Run(ctx, Config{Backend: backend, Workers: 4, Clients: 10, Messages: 10})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestNoSuchBackend(t *testing.T) {
	_, err := Run(t.Context(), Config{Backend: "abacus", Workers: 1, Clients: 1, Messages: 1})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

// newServer makes a server with one connection, which the client it returns can end.
func newServer(t *testing.T, backend string) (*server, *connection, *net.TCPConn) {
	port, err := socknotify.New[key](socknotify.WithBackend(backend))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := sock.New(sock.TCP4)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Connect(l.Addr().(*net.TCPAddr).AddrPort()); err != nil && !errors.Is(err, sock.ErrWouldBlock) {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	c := &connection{socket: s}
	return &server{port: port, open: map[*connection]struct{}{c: {}}, left: 1}, c, peer.(*net.TCPConn)
}

// A reset by a client ends its connection and no other.
func TestReset(t *testing.T) {
	if wine.ForgetsReset.Here() {
		t.Skip(wine.ForgetsReset)
	}
	backendtest.Each(t, func(t *testing.T, backend string) {
		s, c, peer := newServer(t, backend)
		regs := []socknotify.Registration[key]{enableConnection(c)}
		if _, err := s.port.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
			t.Fatal(err, regs[0].Result)
		}
		peer.SetLinger(0)
		peer.Close()
		w := worker{server: s}
		w.run(t.Context())
		if !errors.Is(s.failure(), errno.Reset) {
			t.Errorf("error %v, want a reset", s.failure())
		}
		if w.removals != 1 || len(s.open) != 0 || s.left != 0 {
			t.Errorf("%d removals, %d connections open", w.removals, len(s.open))
		}
	})
}

// A connection whose registration fails belongs to the worker that tried. It is freed once, and the workers exit.
func TestFailedRegistration(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s, c, _ := newServer(t, backend)
		r := enableConnection(c)
		r.Filter = socknotify.EventErr // always on, and invalid here
		w := worker{server: s, regs: []socknotify.Registration[key]{r}}
		s.port.Process(w.regs, nil, 0)
		w.cleanUp()
		if !errors.Is(s.failure(), socknotify.ErrInvalid) {
			t.Errorf("error %v", s.failure())
		}
		if len(s.open) != 0 || s.left != 0 {
			t.Errorf("%d connections open, %d left", len(s.open), s.left)
		}
		w = worker{server: s}
		w.run(t.Context())
		if w.removals != 0 {
			t.Error("a removal of a socket that was never registered")
		}
	})
}

// A connection whose registration cannot be renewed is removed, and freed on its EventRemove.
func TestFailedRenewal(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		s, c, _ := newServer(t, backend)
		good, bad := enableConnection(c), enableConnection(c)
		bad.Filter = socknotify.EventErr
		w := worker{server: s, regs: []socknotify.Registration[key]{good, bad}}
		s.port.Process(w.regs, nil, 0)
		w.cleanUp()
		if len(s.open) != 1 {
			t.Fatal("freed before its EventRemove")
		}
		ready := make([]socknotify.Notification[key], dequeueCount)
		n, err := s.port.Process(nil, ready, 0)
		if err != nil || n != 2 {
			t.Fatalf("dequeued %d, %v; want an exit message and a removal", n, err)
		}
		for _, nt := range ready[:n] {
			if nt.Kind() == socknotify.KindPosted {
				continue
			}
			if nt.Events != socknotify.EventRemove || nt.Key != key(c) {
				t.Errorf("dequeued %v for %v", nt.Events, nt.Key)
			}
			s.free(c)
		}
		if len(s.open) != 0 {
			t.Error("not freed")
		}
	})
}
