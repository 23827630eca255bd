package interop

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2"
	"github.com/socknotify/socknotify/server"
)

// A restartable is a server of TestRestarts.
type restartable struct {
	serve    func(net.Listener) error
	shutdown func(context.Context) error
}

// A lineEcho answers lines by package server.
type lineEcho struct{}

func (lineEcho) Open(*server.Conn[struct{}]) error   { return nil }
func (lineEcho) Close(*server.Conn[struct{}], error) {}
func (lineEcho) Data(c *server.Conn[struct{}], _ []byte) error {
	for {
		line, err := c.Line(100)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(c, "%s\n", line); err != nil {
			return err
		}
	}
}

// Clients that open a connection for each request do not notice that the server is restarted: the next server accepts from
// the same socket, and Shutdown of the old one answers the connections that it has accepted. No client tries again.
func TestRestarts(t *testing.T) {
	const clients = 4
	restarts := long.Or(60, 6)
	cert, trust, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello\n") })
	config := func(protos ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: protos}
	}
	trusting := func(protos ...string) *tls.Config {
		return &tls.Config{RootCAs: trust, ServerName: "127.0.0.1", NextProtos: protos}
	}
	httpServer := func(own, secure bool) restartable {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(own)
		s := &park.HTTPServer{Server: &http.Server{Handler: handler, Protocols: protocols,
			ErrorLog: log.New(io.Discard, "", 0), TLSConfig: config()}}
		if own {
			s.HTTP2 = new(http2.Server)
		}
		if secure {
			return restartable{func(l net.Listener) error { return s.ServeTLS(l, "", "") }, s.Shutdown}
		}
		return restartable{s.Serve, s.Shutdown}
	}
	parkServer := func(secure bool) restartable {
		s := &park.Server{TLSConfig: config(), Handler: func(c net.Conn) error {
			line, err := bufio.NewReaderSize(c, 16).ReadString('\n')
			if err == nil {
				_, err = io.WriteString(c, line)
			}
			return err
		}}
		if secure {
			return restartable{func(l net.Listener) error { return s.ServeTLS(l, "", "") }, s.Shutdown}
		}
		return restartable{s.Serve, s.Shutdown}
	}
	engine := func(secure bool) restartable {
		s := &server.Server[struct{}]{Handler: lineEcho{}, TLSConfig: config()}
		if secure {
			return restartable{func(l net.Listener) error { return s.ServeTLS(l, "", "") }, s.Shutdown}
		}
		return restartable{s.Serve, s.Shutdown}
	}
	for _, c := range []struct {
		name   string
		make   func() restartable
		secure *tls.Config // the client's, or nil
		ask    func(net.Conn) error
	}{
		{"park.Server", func() restartable { return parkServer(false) }, nil, askLine},
		{"park.Server, TLS", func() restartable { return parkServer(true) }, trusting(), askLine},
		{"server.Server", func() restartable { return engine(false) }, nil, askLine},
		{"server.Server, TLS", func() restartable { return engine(true) }, trusting(), askLine},
		{"HTTPServer", func() restartable { return httpServer(false, false) }, nil, askHTTP},
		{"HTTPServer, TLS", func() restartable { return httpServer(false, true) }, trusting("http/1.1"), askHTTP},
		{"HTTPServer, HTTP/2", func() restartable { return httpServer(true, true) }, trusting("h2"), askHTTP2},
		{"HTTPServer, HTTP/2 without TLS", func() restartable { return httpServer(true, false) }, nil, askHTTP2},
		{"HTTPServer, HTTP/1.1 beside HTTP/2 without TLS", func() restartable { return httpServer(true, false) }, nil, askHTTP},
		{"HTTPServer, HTTP/2 of net/http", func() restartable { return httpServer(false, true) }, trusting("h2"), askHTTP2},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer shared.Close()
			start := func() (s restartable, served chan error) {
				s, served = c.make(), make(chan error, 1)
				f, err := shared.(*net.TCPListener).File()
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				l, err := net.FileListener(f)
				if err != nil {
					t.Fatal(err)
				}
				go func() { served <- s.serve(l) }()
				return s, served
			}
			var stop atomic.Bool
			var answered atomic.Int64
			var wg sync.WaitGroup
			running, served := start()
			for range clients {
				wg.Go(func() {
					for !stop.Load() {
						err := once(shared.Addr().String(), c.secure, c.ask)
						if err != nil {
							t.Error(err)
							return
						}
						answered.Add(1)
					}
				})
			}
			for range restarts {
				await.Until(t, "requests are answered", func() bool { return answered.Load() >= 8 || t.Failed() })
				next, nextServed := start()
				if err := running.shutdown(t.Context()); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
				if err := <-served; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
					t.Errorf("Serve: %v", err)
				}
				running, served = next, nextServed
				answered.Store(0)
			}
			stop.Store(true)
			wg.Wait()
			if err := running.shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			<-served
		})
	}
}

// once opens a connection, asks once, and closes it.
func once(addr string, secure *tls.Config, ask func(net.Conn) error) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(await.Limit))
	if secure != nil {
		conn = tls.Client(conn, secure)
	}
	return ask(conn)
}

func askLine(conn net.Conn) error {
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		return fmt.Errorf("got %q, %w", line, err)
	}
	return nil
}

func askHTTP(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("response: %w", err)
	}
	return checkHello(r)
}

func askHTTP2(conn net.Conn) error {
	scheme := "http"
	if conn, ok := conn.(*tls.Conn); ok {
		scheme = "https"
		if err := conn.Handshake(); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	dial := func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	transport := &http.Transport{Protocols: protocols, DialContext: dial, DialTLSContext: dial}
	c, err := transport.NewClientConn(context.Background(), scheme, "127.0.0.1:1") // its RoundTrip does not try again
	if err != nil {
		return fmt.Errorf("preface: %w", err)
	}
	defer c.Close()
	r, err := http.NewRequest("GET", "https://127.0.0.1/", strings.NewReader(""))
	if err != nil {
		return err
	}
	answer, err := c.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("round trip: %w", err)
	}
	return checkHello(answer)
}

func checkHello(r *http.Response) error {
	defer r.Body.Close()
	if body, err := io.ReadAll(r.Body); err != nil || string(body) != "hello\n" {
		return fmt.Errorf("%s %q, %w", r.Status, body, err)
	}
	return nil
}
