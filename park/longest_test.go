package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/durationtest"
)

// awaitTicks waits until an idle timeout of another connection has expired on each lot. A timeout
// that is over would have ended its connection by then.
func awaitTicks(t *testing.T, lots ...*Lot) {
	t.Helper()
	f, outcomes := conntest.Reader()
	for _, l := range lots {
		conn, _ := conntest.Pair(t, "tcp")
		check.OK(t, l.ParkWith(conn, Options{IdleTimeout: 1}, f))
	}
	for range lots {
		check.Is(t, await.Value(t, outcomes).Err, os.ErrDeadlineExceeded)
	}
}

// parkPatiently parks connections that echo, with options, and expects that they stay parked until
// something arrives.
func parkPatiently(t *testing.T, l *Lot, o Options) {
	t.Helper()
	ended := make(chan error, 10)
	var f func(net.Conn)
	f = func(conn net.Conn) {
		buf := make([]byte, 64)
		n, err := conn.Read(buf)
		if err == nil {
			_, err = conn.Write(buf[:n])
		}
		if err == nil {
			err = l.ParkWith(conn, o, f)
		}
		if err != nil {
			ended <- err
		}
	}
	var clients []net.Conn
	for _, wrap := range []func(net.Conn) net.Conn{
		func(c net.Conn) net.Conn { return c },
		func(c net.Conn) net.Conn { return parking.Wrap(conntest.Embedding(c)) }, // may be kept
		conntest.NewHeaderConn,                                                   // is settled first
	} {
		server, client := conntest.Pair(t, "tcp")
		clients = append(clients, client)
		check.OK(t, l.ParkWith(wrap(server), o, f))
	}
	for first := true; ; first = false {
		awaitTicks(t, l)
		if first {
			conntest.Send(t, clients[2], "header\n")
		}
		for range 6 {
			for _, client := range clients {
				conntest.Send(t, client, "text")
				conntest.Expect(t, client, "text")
			}
		}
		if !first {
			break
		}
	}
	check.Empty(t, ended)
	for _, client := range clients {
		client.Close()
		check.Is(t, await.Value(t, ended), io.EOF)
	}
}

// With the longest durations in its fields a lot works as without timeouts.
func TestLongestDurations(t *testing.T) {
	t.Parallel() // it waits
	durationtest.Longest(t, new(Config), func(t *testing.T, set func(*Config)) {
		var c Config
		set(&c)
		parkPatiently(t, newLot(t, c), Options{})
	})
}

func TestLongestDurationsOfOptions(t *testing.T) {
	t.Parallel() // it waits
	durationtest.Longest(t, new(Options), func(t *testing.T, set func(*Options)) {
		var o Options
		set(&o)
		parkPatiently(t, newLot(t, Config{}), o)
	})
}

func TestLongestDurationsOfServer(t *testing.T) {
	t.Parallel() // it waits
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	opaque := conntest.Opaque
	plain := func(c net.Conn) net.Conn { return c }
	durationtest.Longest(t, new(Server), func(t *testing.T, set func(*Server)) {
		var servers []*lineServer
		var lots []*Lot
		var conns []net.Conn
		for _, wrap := range []func(net.Conn) net.Conn{plain, opaque} {
			for _, secure := range []bool{false, true} {
				configure := func(s *Server) { // the defaults are too short for a busy machine
					s.ReadTimeout, s.WriteTimeout, s.HandshakeTimeout = conntest.Timeout, conntest.Timeout, conntest.Timeout
					set(s)
				}
				s := newLineServer(t, configure, func(s *Server, l net.Listener) error {
					l = conntest.Wrapping(l, wrap)
					if !secure {
						return s.Serve(l)
					}
					s.TLSConfig = config
					return s.ServeTLS(l, "", "")
				})
				s.secure = secure
				servers, conns = append(servers, s), append(conns, s.dial())
				await.Until(t, "accepted", func() bool { return s.Stats().Conns == 1 })
				lots = append(lots, s.lot)
			}
		}
		awaitTicks(t, lots...) // before the handshakes
		for i, s := range servers {
			for range 3 {
				s.ask(conns[i], "text")
			}
			conntest.Send(t, conns[i], "half ")
			await.Until(t, "reading", func() bool { return s.Stats().Running == 1 })
		}
		awaitTicks(t, lots...)
		for i, s := range servers {
			conntest.Send(t, conns[i], "a line\n")
			conntest.Expect(t, conns[i], "half a line\n")
			s.ask(conns[i], "text")
			conns[i].Close()
			check.Is(t, await.Value(t, s.closed), io.EOF)
		}
	})
}

func TestLongestDurationsOfListener(t *testing.T) {
	t.Parallel() // it waits
	durationtest.Longest(t, new(ListenerConfig), func(t *testing.T, set func(*ListenerConfig)) {
		var c ListenerConfig
		set(&c)
		f, dial := firstByteListener(t, c, nil)
		conns, _ := accepting(f)
		client := dial()
		await.Until(t, "parked", func() bool { return f.Stats().Parked == 1 })
		awaitTicks(t, f.lot)
		conntest.Send(t, client, "text")
		conn := await.Value(t, conns)
		defer conn.Close()
		conntest.Expect(t, conn, "text")
	})
}

func TestLongestDurationsOfHTTPServer(t *testing.T) {
	t.Parallel() // it waits
	config := &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	like := &HTTPServer{Server: new(http.Server)}
	durationtest.Longest(t, like, func(t *testing.T, set func(*HTTPServer)) {
		var servers []*testServer
		var lots []*Lot
		var conns []net.Conn
		for _, wrap := range []func(net.Listener) net.Listener{
			func(l net.Listener) net.Listener { return l },
			func(l net.Listener) net.Listener { return tls.NewListener(l, config) },
			func(l net.Listener) net.Listener {
				return conntest.Wrapping(l, conntest.Opaque)
			},
		} {
			s := newTestServer(t, set, func(s *HTTPServer, l net.Listener) error {
				return s.Serve(wrap(l))
			})
			conn, err := net.Dial("tcp", s.address)
			check.OK(t, err)
			defer conn.Close()
			if len(servers) == 1 {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			await.Until(t, "serving", s.Ready)
			servers, conns = append(servers, s), append(conns, conn)
			lots = append(lots, s.Lots()...)
		}
		awaitTicks(t, lots...) // before the handshakes
		var ins []*bufio.Reader
		for i, s := range servers {
			in := bufio.NewReader(conns[i])
			ins = append(ins, in)
			for range 3 {
				s.ask(conns[i], in)
			}
			conntest.Send(t, conns[i], hello[:10])
		}
		awaitTicks(t, lots...)
		for i, s := range servers {
			conntest.Send(t, conns[i], hello[10:])
			answer, err := http.ReadResponse(ins[i], nil)
			check.OK(t, err)
			if body, err := io.ReadAll(answer.Body); string(body) != "hello\n" || err != nil {
				t.Fatalf("%q, %v", body, err)
			}
			s.ask(conns[i], ins[i])
		}
		awaitTicks(t, lots...)
		for i, s := range servers {
			s.ask(conns[i], ins[i])
		}
	})
}
