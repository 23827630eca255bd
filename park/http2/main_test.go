package http2

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) {
	answerTimeout = time.Second
	if !playRole() {
		log.SetOutput(io.Discard)
		leaks.Main(m)
	}
}

// timeout is long enough for anything that must happen.
const timeout = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	await.Until(t, what, f)
}

// certificate makes the certificate of the tests' servers.
var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	cert, trust, err := selfcert.New(24*time.Hour, "127.0.0.1")
	if err != nil {
		panic(err)
	}
	return cert, trust
})

// accept serves the connections of a listener, by TLS if it is not nil.
func accept(s *Server, ln net.Listener, config *tls.Config) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		if config == nil {
			s.ServeConn(context.Background(), conn)
			continue
		}
		go func() {
			t := tls.Server(conn, config)
			if t.SetDeadline(time.Now().Add(timeout)); t.Handshake() != nil {
				conn.Close()
				return
			}
			t.SetDeadline(time.Time{})
			s.ServeConn(context.Background(), t)
		}()
	}
}

// serve starts a server, and returns its URL. At the end of the test everything must have ended.
func serve(t testing.TB, s *Server, secure bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	if !secure {
		serveOn(t, s, ln, nil)
		return "http://" + ln.Addr().String()
	}
	cert, _ := certificate()
	serveOn(t, s, ln, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	return "https://" + ln.Addr().String()
}

// serveUnix is serve by a Unix socket, for a client that sends much and reads nothing. Over TCP on Linux, a segment that
// finds the client's receive buffer full is dropped with its acknowledgement (TCPRcvQDrop), and then both sides retransmit
// at intervals that double.
func serveUnix(t testing.TB, s *Server) string {
	dir, err := os.MkdirTemp("", "http2") // t.TempDir can be too long for an address
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(t, err)
	serveOn(t, s, ln, nil)
	return "unix://" + ln.Addr().String()
}

func serveOn(t testing.TB, s *Server, ln net.Listener, config *tls.Config) {
	var accepting sync.WaitGroup
	accepting.Go(func() { accept(s, ln, config) })
	t.Cleanup(func() {
		ln.Close()
		accepting.Wait()
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Parked != 0 || st.Running != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
}

// client returns a client that speaks HTTP/2 only.
func client(t testing.TB) *http.Client {
	_, trust := certificate()
	var p http.Protocols
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: trust}, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: timeout}
}

func handler(f http.HandlerFunc) *http.Server { return &http.Server{Handler: f} }

// both runs a test in clear text and by TLS.
func both(t *testing.T, f func(t *testing.T, secure bool)) {
	for _, c := range []struct {
		name   string
		secure bool
	}{{"h2c", false}, {"TLS", true}} {
		t.Run(c.name, func(t *testing.T) { f(t, c.secure) })
	}
}

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(b)
}

func echo(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Method", r.Method)
	w.Write(b)
}
