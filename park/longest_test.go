package park

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/socknotify/socknotify/internal/test/durationtest"
)

// awaitTicks waits until an idle timeout of another connection has expired on each lot. A timeout
// that is over would have ended its connection by then.
func awaitTicks(t *testing.T, lots ...*Lot) {
	t.Helper()
	f, outcomes := reader()
	for _, l := range lots {
		conn, _ := pair(t, "tcp")
		must(t, l.ParkWith(conn, Options{IdleTimeout: 1}, f))
	}
	for range lots {
		wantErr(t, receive(t, outcomes).err, os.ErrDeadlineExceeded)
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
		func(c net.Conn) net.Conn { return Wrap(embeddingConn{c}) }, // may be kept
		newHeaderConn, // is settled first
	} {
		server, client := pair(t, "tcp")
		clients = append(clients, client)
		must(t, l.ParkWith(wrap(server), o, f))
	}
	for first := true; ; first = false {
		awaitTicks(t, l)
		if first {
			send(t, clients[2], "header\n")
		}
		for range 2 * steadyPace {
			for _, client := range clients {
				send(t, client, "text")
				expect(t, client, "text")
			}
		}
		if !first {
			break
		}
	}
	wantEmpty(t, ended)
	for _, client := range clients {
		client.Close()
		wantErr(t, receive(t, ended), io.EOF)
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
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	opaque := func(c net.Conn) net.Conn { return opaqueConn{c} }
	plain := func(c net.Conn) net.Conn { return c }
	durationtest.Longest(t, new(Server), func(t *testing.T, set func(*Server)) {
		var servers []*lineServer
		var lots []*Lot
		var conns []net.Conn
		for _, wrap := range []func(net.Conn) net.Conn{plain, opaque} {
			for _, secure := range []bool{false, true} {
				configure := func(s *Server) { // the defaults are too short for a busy machine
					s.ReadTimeout, s.WriteTimeout, s.HandshakeTimeout = timeout, timeout, timeout
					set(s)
				}
				s := newLineServer(t, configure, func(s *Server, l net.Listener) error {
					l = wrappingListener{l, wrap}
					if !secure {
						return s.Serve(l)
					}
					s.TLSConfig = config
					return s.ServeTLS(l, "", "")
				})
				s.secure = secure
				servers, conns = append(servers, s), append(conns, s.dial())
				waitFor(t, "accepted", func() bool { return s.Stats().Conns == 1 })
				lots = append(lots, s.lot)
			}
		}
		awaitTicks(t, lots...) // before the handshakes
		for i, s := range servers {
			for range 3 {
				s.ask(conns[i], "text")
			}
			send(t, conns[i], "half ")
			waitFor(t, "reading", func() bool { return s.Stats().Running == 1 })
		}
		awaitTicks(t, lots...)
		for i, s := range servers {
			send(t, conns[i], "a line\n")
			expect(t, conns[i], "half a line\n")
			s.ask(conns[i], "text")
			conns[i].Close()
			wantErr(t, receive(t, s.closed), io.EOF)
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
		waitFor(t, "parked", func() bool { return f.Stats().Parked == 1 })
		awaitTicks(t, f.lot)
		send(t, client, "text")
		conn := receive(t, conns)
		defer conn.Close()
		expect(t, conn, "text")
	})
}

func TestLongestDurationsOfHTTPServer(t *testing.T) {
	t.Parallel() // it waits
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	like := &HTTPServer{Server: new(http.Server)}
	durationtest.Longest(t, like, func(t *testing.T, set func(*HTTPServer)) {
		var servers []*testServer
		var lots []*Lot
		var conns []net.Conn
		for _, wrap := range []func(net.Listener) net.Listener{
			func(l net.Listener) net.Listener { return l },
			func(l net.Listener) net.Listener { return tls.NewListener(l, config) },
			func(l net.Listener) net.Listener {
				return wrappingListener{l, func(c net.Conn) net.Conn { return opaqueConn{c} }}
			},
		} {
			s := newTestServer(t, set, func(s *HTTPServer, l net.Listener) error {
				return s.Serve(wrap(l))
			})
			conn, err := net.Dial("tcp", s.address)
			must(t, err)
			defer conn.Close()
			if len(servers) == 1 {
				conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			}
			waitFor(t, "serving", s.Ready)
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
			send(t, conns[i], hello[:10])
		}
		awaitTicks(t, lots...)
		for i, s := range servers {
			send(t, conns[i], hello[10:])
			answer, err := http.ReadResponse(ins[i], nil)
			must(t, err)
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
