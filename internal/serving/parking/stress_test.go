package parking

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

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/wine"
)

// A stressTest parks, serves, wakes, unparks and closes connections from many goroutines, while their lot is replaced
// repeatedly. Some connections have TLS, and some a wrapper that reads a header.
type stressTest struct {
	t       *testing.T
	config  Config
	cert    tls.Certificate
	lot     atomic.Pointer[Lot]
	stopped atomic.Bool

	parks, runs, taken atomic.Int64
	conns              [24]atomic.Pointer[stressConn]
}

// A stressConn is the server's end of a connection. It is owned by its function, or by the goroutine whose Unpark
// returned true.
type stressConn struct {
	s      *stressTest
	conn   net.Conn
	secure bool          // a deadline that passes would end the handshake
	end    chan struct{} // closed when the server has closed the connection
}

func TestStress(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, bound := range []int{0, 4} {
			t.Run(fmt.Sprint("bound ", bound), func(t *testing.T) {
				s := &stressTest{t: t, config: Config{Backend: backend, MaxRunning: bound}, cert: conntest.Certificate(t)}
				s.run(conntest.StressDuration(t))
			})
		}
	})
}

func (s *stressTest) run(d time.Duration) {
	before := handles.List()
	s.lot.Store(newLot(s.t, s.config))
	var clients, others sync.WaitGroup
	for i := range s.conns {
		clients.Go(func() {
			for n := 0; !s.stopped.Load() && !s.t.Failed(); n++ {
				s.runClient(i, n)
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for !s.stopped.Load() {
				s.disturb()
				await.UpTo(500 * time.Microsecond)
			}
		})
	}
	others.Go(func() {
		for end := time.Now().Add(d); time.Now().Before(end) && !s.t.Failed(); {
			await.Pause(time.Duration(100+rand.IntN(300)) * time.Millisecond)
			old := s.lot.Swap(newLot(s.t, s.config))
			ctx, cancel := context.WithTimeout(context.Background(), conntest.Timeout)
			if err := old.Shutdown(ctx); err != nil {
				s.t.Errorf("Shutdown: %v, %+v, %d open", err, old.Counts(), old.open.Load())
			}
			cancel()
		}
		s.stopped.Store(true)
	})
	ended := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() { // more often than the lot's sweeper
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				l := s.lot.Load()
				l.conns.some(0, 1, l.sweepConn)
			}
		}
	})
	clients.Wait()
	others.Wait()
	close(ended)
	sweeping.Wait()
	check.OK(s.t, s.lot.Load().Shutdown(context.Background()))
	handles.Settle(s.t, before, conntest.Timeout)
	if parks, runs, taken := s.parks.Load(), s.runs.Load(), s.taken.Load(); parks != runs+taken || runs == 0 || taken == 0 {
		s.t.Errorf("%d parkings, %d runs, %d taken back", parks, runs, taken)
	}
	s.t.Logf("%d parkings, %d taken back", s.parks.Load(), s.taken.Load())
}

// runClient makes a connection, exchanges messages, and waits until the server has closed its end.
func (s *stressTest) runClient(i, n int) {
	network := "unix"
	if i%4 == 0 || wine.HasNoUnix.Here() {
		network = "tcp"
	}
	server, client := s.pair(network)
	if server == nil {
		return
	}
	if t, ok := client.(*net.TCPConn); ok {
		t.SetLinger(0) // otherwise the system runs out of TCP ports
	}
	g := &stressConn{s: s, conn: server, end: make(chan struct{})}
	switch {
	case i%6 == 2:
		g.conn = Wrap(conntest.NewHeaderConn(server))
	case i%3 == 1:
		g.secure = true
		g.conn = Wrap(conntest.TLSKind{CryptoTLS: i%2 == 0}.ServerWith(server, s.cert))
		client = tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	}
	s.conns[i].Store(g)
	g.park(nil)
	if i%6 == 2 {
		client.Write([]byte("hea"))
		await.UpTo(2 * time.Millisecond)
		client.Write([]byte("der\n"))
	}
	s.exchange(client)
	switch half, ok := client.(interface{ CloseWrite() error }); {
	case ok && rand.IntN(3) == 0 && half.CloseWrite() == nil: // with TLS it fails before the handshake
		client.SetReadDeadline(time.Now().Add(conntest.Timeout))
		if _, err := io.Copy(io.Discard, client); errors.Is(err, os.ErrDeadlineExceeded) {
			s.t.Errorf("%s %d: the server has not noticed the end of the stream: %+v", network, i, s.lot.Load().Counts())
		}
	}
	client.Close()
	await.Receive(s.t, fmt.Sprintf("the server closes %s %d", network, i), g.end)
}

func (s *stressTest) pair(network string) (server, client net.Conn) {
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "stress")
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

// exchange sends a random number of messages and verifies their echoes. It stops early if the server closes.
func (s *stressTest) exchange(conn net.Conn) {
	for n := rand.IntN(60); n > 0 && !s.stopped.Load(); n-- {
		text := make([]byte, 1+rand.IntN(100))
		for i := range text {
			text[i] = byte(rand.Int())
		}
		conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
		cut := rand.IntN(len(text))
		conn.Write(text[:cut])
		if rand.IntN(4) == 0 {
			await.UpTo(2 * time.Millisecond)
		}
		conn.Write(text[cut:])
		got := make([]byte, len(text))
		if _, err := io.ReadFull(conn, got); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.t.Errorf("no answer to %d bytes: %+v", len(text), s.lot.Load().Counts())
			}
			return
		}
		if string(got) != string(text) {
			s.t.Errorf("%x came back as %x", text, got)
			return
		}
		if rand.IntN(4) == 0 {
			await.UpTo(3 * time.Millisecond)
		}
	}
}

// serve returns the function of a connection that is parked in the lot in, with options.
func (g *stressConn) serve(in *Lot, o Options) func(net.Conn) {
	return func(conn net.Conn) {
		g.s.runs.Add(1)
		if conn != g.conn {
			g.s.t.Errorf("the function receives a %T", conn)
		}
		if rand.IntN(20) == 0 {
			await.Pause(time.Millisecond)
		}
		maybeWoken := o.IdleTimeout == 0 && !g.secure
		if maybeWoken {
			conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		}
		buf := make([]byte, 1+rand.IntN(64))
		n, err := conn.Read(buf)
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		switch {
		case maybeWoken && errors.Is(err, os.ErrDeadlineExceeded):
			g.park(in)
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

func (g *stressConn) close() {
	g.conn.Close()
	close(g.end)
}

// park parks the connection in the current lot. in is the lot in which it was parked before, or nil.
func (g *stressConn) park(in *Lot) {
	var o Options
	switch rand.IntN(6) {
	case 0, 1:
		o.IdleTimeout = time.Duration(1+rand.IntN(300)) * time.Millisecond
	case 2:
		o.Writable = !g.secure
	}
	for {
		lot := g.s.lot.Load()
		if in != nil && in != lot && in.Unpark(g.conn) {
			g.s.t.Error("Unpark succeeded for a connection that was not parked")
		}
		g.s.parks.Add(1)
		err := lot.ParkWith(g.conn, o, g.serve(lot, o))
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

// disturb unparks, wakes or closes a random connection.
func (s *stressTest) disturb() {
	g := s.conns[rand.IntN(len(s.conns))].Load()
	if g == nil {
		return
	}
	lot := s.lot.Load()
	switch n := rand.IntN(1000); {
	case n < 450:
		lot.Wake(g.conn)
	case n < 900:
		if lot.Unpark(g.conn) {
			s.taken.Add(1)
			g.park(lot)
		}
	case n < 950:
		lot.CloseConn(g.conn)
	case n < 953:
		g.conn.Close() // not through the lot
	}
}
