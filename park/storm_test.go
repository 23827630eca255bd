package park

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/backendtest"
	"github.com/socknotify/socknotify/internal/handles"
	"github.com/socknotify/socknotify/internal/wine"
)

// stormTime is how long a storm lasts: PARK_STORM, such as 5m, or a moment.
func stormTime(t *testing.T) time.Duration {
	d := 1500 * time.Millisecond
	if v := os.Getenv("PARK_STORM"); v != "" {
		var err error
		d, err = time.ParseDuration(v)
		must(t, err)
	}
	return d
}

// A storm is guests that are parked, served, taken back and closed by either side, while their lot is
// replaced time and again.
type storm struct {
	t      *testing.T
	config Config
	cert   tls.Certificate
	lot    atomic.Pointer[Lot]
	over   atomic.Bool

	parks, runs, taken atomic.Int64
	guests             [24]atomic.Pointer[guest]
}

// A guest is the server's end of a connection. It is its function's, or whoever's took it back.
type guest struct {
	s    *storm
	conn net.Conn
	end  chan struct{} // the server is done with it
}

func TestStorm(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, bound := range []int{0, 4} {
			t.Run(fmt.Sprint("bound ", bound), func(t *testing.T) {
				s := &storm{t: t, config: Config{Backend: backend, MaxRunning: bound}, cert: certificate(t)}
				s.rage(stormTime(t))
			})
		}
	})
}

func (s *storm) rage(d time.Duration) {
	before := handles.List()
	s.lot.Store(newLot(s.t, s.config))
	var clients, others sync.WaitGroup
	for i := range s.guests {
		clients.Go(func() {
			for n := 0; !s.over.Load() && !s.t.Failed(); n++ {
				s.visit(i, n)
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for !s.over.Load() {
				s.meddle()
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
			}
		})
	}
	others.Go(func() {
		for end := time.Now().Add(d); time.Now().Before(end) && !s.t.Failed(); {
			time.Sleep(time.Duration(100+rand.IntN(300)) * time.Millisecond)
			old := s.lot.Swap(newLot(s.t, s.config))
			ctx, cancel := context.WithTimeout(context.Background(), soon)
			if err := old.Shutdown(ctx); err != nil {
				s.t.Errorf("Shutdown: %v, %+v, %d open", err, old.Stats(), old.open.Load())
			}
			cancel()
		}
		s.over.Store(true)
	})
	ended := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() { // more often than the lot does by itself
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
				l := s.lot.Load()
				l.spots.some(0, 1, l.look)
			}
		}
	})
	clients.Wait()
	others.Wait()
	close(ended)
	sweeping.Wait()
	must(s.t, s.lot.Load().Shutdown(context.Background()))
	handles.Settle(s.t, before, soon)
	if parks, runs, taken := s.parks.Load(), s.runs.Load(), s.taken.Load(); parks != runs+taken || runs == 0 || taken == 0 {
		s.t.Errorf("%d parkings, %d runs, %d taken back", parks, runs, taken)
	}
	s.t.Logf("%d parkings, %d taken back", s.parks.Load(), s.taken.Load())
}

// visit is the life of one connection, from the client's side.
func (s *storm) visit(i, n int) {
	network := "unix"
	if i%4 == 0 || wine.HasNoUnix.Here() {
		network = "tcp"
	}
	server, client := s.pair(network)
	if server == nil {
		return
	}
	if t, ok := client.(*net.TCPConn); ok {
		t.SetLinger(0) // or the ports run out
	}
	g := &guest{s: s, conn: server, end: make(chan struct{})}
	if i%3 == 1 {
		g.conn = Wrap(tls.Server(server, &tls.Config{Certificates: []tls.Certificate{s.cert}}))
		client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	}
	s.guests[i].Store(g)
	g.park(nil)
	s.talk(client)
	switch half, ok := client.(interface{ CloseWrite() error }); {
	case ok && rand.IntN(3) == 0:
		half.CloseWrite()
		client.SetReadDeadline(time.Now().Add(soon))
		io.Copy(io.Discard, client)
	}
	client.Close()
	select {
	case <-g.end:
	case <-time.After(2 * soon):
		s.t.Errorf("%s %d: the server never noticed: %+v", network, i, s.lot.Load().Stats())
	}
}

func (s *storm) pair(network string) (server, client net.Conn) {
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "storm")
		if err != nil {
			s.t.Error(err)
			return nil, nil
		}
		defer os.RemoveAll(dir)
		address = dir + "/s"
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		s.t.Error(err)
		return nil, nil
	}
	defer ln.Close()
	if client, err = net.Dial(network, ln.Addr().String()); err == nil {
		server, err = ln.Accept()
	}
	if err != nil {
		s.t.Error(err)
		return nil, nil
	}
	return server, client
}

// talk sends messages and expects them back, until either side has had enough.
func (s *storm) talk(conn net.Conn) {
	for n := rand.IntN(60); n > 0 && !s.over.Load(); n-- {
		text := make([]byte, 1+rand.IntN(100))
		for i := range text {
			text[i] = byte(rand.Int())
		}
		conn.SetDeadline(time.Now().Add(2 * soon))
		cut := rand.IntN(len(text))
		conn.Write(text[:cut])
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		}
		conn.Write(text[cut:])
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.t.Errorf("no answer to %d bytes: %+v", len(text), s.lot.Load().Stats())
			}
			return
		}
		if string(got) != string(text) {
			s.t.Errorf("%x came back as %x", text, got)
			return
		}
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
	}
}

// serve is the function of a parked guest.
func (g *guest) serve(in *Lot) func(net.Conn) {
	return func(conn net.Conn) {
		g.s.runs.Add(1)
		if conn != g.conn {
			g.s.t.Errorf("given a %T", conn)
		}
		if rand.IntN(20) == 0 {
			time.Sleep(time.Millisecond)
		}
		buf := make([]byte, 1+rand.IntN(64))
		n, err := conn.Read(buf)
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		switch {
		case err != nil:
			g.close()
		case rand.IntN(200) == 0:
			in.CloseConn(conn)
			close(g.end)
		default:
			g.park(in)
		}
	}
}

func (g *guest) close() {
	g.conn.Close()
	close(g.end)
}

// park parks in the lot of the moment. in is the lot that had it.
func (g *guest) park(in *Lot) {
	var o Options
	if rand.IntN(3) == 0 {
		o.IdleTimeout = time.Duration(1+rand.IntN(300)) * time.Millisecond
	}
	for {
		lot := g.s.lot.Load()
		if in != nil && in != lot && in.Unpark(g.conn) {
			g.s.t.Error("taken back what was not parked")
		}
		g.s.parks.Add(1)
		err := lot.ParkWith(g.conn, o, g.serve(lot))
		if err == nil {
			return
		}
		g.s.parks.Add(-1)
		if errors.Is(err, ErrParked) {
			g.s.t.Error(err)
		}
		if err != ErrClosed {
			g.close()
			return
		}
		in = lot
	}
}

// meddle does something to a guest from outside.
func (s *storm) meddle() {
	g := s.guests[rand.IntN(len(s.guests))].Load()
	if g == nil {
		return
	}
	lot := s.lot.Load()
	switch n := rand.IntN(1000); {
	case n < 900:
		if lot.Unpark(g.conn) {
			s.taken.Add(1)
			g.park(lot)
		}
	case n < 950:
		lot.CloseConn(g.conn)
	case n < 953:
		g.conn.Close() // behind the lot's back
	}
}
