package server_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// certified makes configurations of a server and of its clients.
func certified(t testing.TB) (s, c *tls.Config) {
	t.Helper()
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, &tls.Config{RootCAs: trust, ServerName: "localhost"}
}

// startTLS is start with TLS.
func startTLS(t testing.TB, s *srv) (addr string, client *tls.Config) {
	t.Helper()
	config, client := certified(t)
	if s.TLSConfig == nil {
		s.TLSConfig = config
	} else {
		s.TLSConfig.Certificates = config.Certificates
	}
	if strings.Contains(t.Name(), strings.ReplaceAll(keptName, " ", "_")) {
		s.CryptoTLS = true
	}
	return serveTLS(t, s), client
}

// serveTLS is start with the server's TLS configuration.
func serveTLS(t testing.TB, s *srv) (addr string) {
	t.Helper()
	l := listen(t)
	served(t, s, func() error { return s.ServeTLS(l, "", "") })
	return l.Addr().String()
}

func dialTLS(t testing.TB, addr string, config *tls.Config) *tls.Conn {
	t.Helper()
	c := tls.Client(dial(t, addr), config)
	must(t, c.Handshake())
	return c
}

// connectTLS starts a server and connects to it.
func connectTLS(t testing.TB, s *srv) *tls.Conn {
	t.Helper()
	addr, config := startTLS(t, s)
	return dialTLS(t, addr, config)
}

// versions runs a test for each backend and each version of TLS, and where crypto/tls keeps the
// connections. The server has no other settings.
func versions(t *testing.T, f func(t *testing.T, h *handler, s *srv)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		run := func(name string, version uint16) {
			t.Run(name, func(t *testing.T) {
				h, config := &handler{t: t}, &tls.Config{MinVersion: version, MaxVersion: version}
				f(t, h, &srv{Handler: h, Backend: backend, TLSConfig: config})
			})
		}
		for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			run(tls.VersionName(v), v)
		}
		run(keptName, tls.VersionTLS13)
	})
}

// owners runs a test for each backend, and where crypto/tls keeps the connections.
func owners(t *testing.T, f func(t *testing.T, backend string)) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		t.Run("taken over", func(t *testing.T) { f(t, backend) })
		t.Run(keptName, func(t *testing.T) { f(t, backend) })
	})
}

// keptName is in the names of tests for which startTLS sets CryptoTLS.
const keptName = "kept by crypto-tls"

// Small and large amounts come back, in records of all sizes, through buffers of other sizes.
func TestTLSEcho(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		for _, size := range []int{0, fewer(), 1000, 20_000} {
			t.Run(fmt.Sprint("buffer=", size), func(t *testing.T) {
				h := &handler{t: t}
				s := &srv{Handler: h, Backend: s.Backend, BufferSize: size, HandshakeTimeout: soon, TLSConfig: s.TLSConfig.Clone()}
				tc := connectTLS(t, s)
				c := extended{tc}
				total := 1 << 20
				if size == fewer() {
					total = 20_000
				}
				sent := stream(1, 0, total)
				go func() {
					for rest, k := sent, 1; len(rest) > 0; k = k*3 + 1 {
						k = min(k, len(rest))
						c.Write(rest[:k])
						rest = rest[k:]
					}
					tc.CloseWrite()
				}()
				expectAll(t, c, sent)
				h.wantCause(1, nil)
			})
		}
	})
}

// Open knows what was negotiated, and can write.
func TestTLSState(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		h.open = func(c conn) error {
			st := c.TLS()
			_, err := fmt.Fprintf(c, "%v %x %s;", st.HandshakeComplete, st.Version, st.NegotiatedProtocol)
			return err
		}
		s.TLSConfig.NextProtos = []string{"one", "two"}
		addr, config := startTLS(t, s)
		config.NextProtos = []string{"two"}
		c := dialTLS(t, addr, config)
		expect(t, c, fmt.Sprintf("true %x two;", s.TLSConfig.MaxVersion))
		if h.conn(1).RemoteAddr().String() != c.LocalAddr().String() {
			t.Error("wrong address")
		}
		plain := &handler{t: t}
		dial(t, start(t, &srv{Handler: plain, Backend: s.Backend}))
		if st := plain.conn(1).TLS(); st != nil {
			t.Errorf("%+v of a connection without TLS", st)
		}
	})
}

// A session can be resumed, on another listener too.
func TestTLSResumption(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		first, config := startTLS(t, s)
		second := serveTLS(t, s)
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for i, addr := range []string{first, first, second} {
			c := dialTLS(t, addr, config)
			send(t, c, "hello")
			expect(t, c, "hello") // with it the ticket is received
			if did := c.ConnectionState().DidResume; did != (i > 0) {
				t.Errorf("connection %d: resumed %v", i, did)
			}
			c.Close()
		}
	})
}

// Every byte of a connection may arrive alone, from the first byte of the ClientHello on.
func TestTLSInPieces(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		addr, config := startTLS(t, s)
		c := tls.Client(trickle{dial(t, addr)}, config)
		for range 20 {
			echoes(t, c, "hello, world")
		}
		c.CloseWrite()
		expectEnd(t, c, io.EOF)
	})
}

// A trickle writes byte by byte.
type trickle struct{ net.Conn }

func (c trickle) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := c.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// The rest of a record that does not fit into the handler's buffer, and the records after it, are read without another byte
// from the peer, also after a pause.
func TestTLSReadAllRecords(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		read := reading(func(c conn, text string) error {
			c.Pause()
			go func() {
				c.Write([]byte(text))
				c.Resume()
			}()
			return nil
		})
		h.data = func(c conn, buf []byte) error { return read(c, buf[:7]) }
		addr, config := startTLS(t, s)
		inner := &gather{Conn: dial(t, addr)}
		c := tls.Client(inner, config)
		echoes(t, c, "start")
		inner.hold()
		for i := range 30 {
			send(t, c, fmt.Sprintf("record %3d;", i))
		}
		inner.release() // all in one segment
		for i := range 30 {
			expect(t, c, fmt.Sprintf("record %3d;", i))
		}
		inner.hold()
		send(t, c, "the last")
		c.CloseWrite() // in the same one
		inner.release()
		expect(t, c, "the last")
		expectEnd(t, c, io.EOF)
	})
}

// A gather can hold writes back, and then write them together.
type gather struct {
	net.Conn
	held    []byte
	holding bool
}

func (c *gather) hold() { c.holding = true }

func (c *gather) release() {
	c.holding = false
	c.SetWriteDeadline(time.Time{}) // CloseWrite has left one
	c.Conn.Write(c.held)
	c.held = nil
}

func (c *gather) Write(b []byte) (int, error) {
	if c.holding {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A write is taken whole while less than MaxQueued is queued, and refused whole then. None of the bytes taken is lost.
func TestTLSQueue(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		s.MaxQueued = 100_000
		c := connectTLS(t, s)
		sc := h.conn(1)
		total, err := fillStream(sc, 70_000)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := sc.Write([]byte("x")); n != 0 || err != server.ErrQueueFull {
			t.Errorf("Write = %d, %v", n, err)
		}
		if q := sc.Queued(); q < 100_000 || q > 100_000+71_000 {
			t.Errorf("%d bytes queued", q)
		}
		sc.Close()
		expectAll(t, c, stream(1, 0, total))
		h.wantCause(1, nil)
	})
}

// Each side can end its stream first, with a close_notify.
func TestTLSHalfClose(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		for _, end := range []string{"Close", "CloseWrite", "io.EOF", "error", "idle"} {
			t.Run(end, func(t *testing.T) {
				failed := errors.New("failed")
				h := &handler{t: t}
				h.data = reading(func(c conn, _ string) error {
					switch end {
					case "Close":
						return c.Close()
					case "CloseWrite":
						return c.CloseWrite()
					case "io.EOF":
						return io.EOF
					case "error":
						return failed
					}
					c.SetIdleTimeout(50 * time.Millisecond) // from now on, or what is on its way would make it a reset
					return nil
				})
				addr, config := startTLS(t, &srv{Handler: h, Backend: s.Backend, TLSConfig: s.TLSConfig.Clone()})
				raw := &unexpected{TCPConn: dial(t, addr)}
				c := tls.Client(raw, config)
				send(t, c, "x")
				expectEnd(t, c, io.EOF)
				if raw.eof {
					t.Error("the stream below ended before close_notify")
				}
				c.Close()
				h.wantCause(1, map[string]error{"error": failed, "idle": server.ErrIdle}[end])
			})
		}
	})
}

// An unexpected notes the end of the stream.
type unexpected struct {
	*net.TCPConn
	eof bool
}

func (c *unexpected) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.eof = c.eof || err == io.EOF
	return n, err
}

// Handshakes that fail, are cut off, or never finish end without Open. Other connections are served.
func TestTLSHandshakeFailures(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		h := &handler{t: t}
		s := &srv{Handler: h, Backend: backend, HandshakeTimeout: time.Second, MaxHandshakes: 2}
		clock := testclock.Install(t)
		addr, config := startTLS(t, s)
		hello := clientHello(t, config)
		for _, text := range []string{"", "\x16", "\x16\x03\x01", "GET / HTTP/1.1\r\n\r\n", string(hello[:len(hello)-1]),
			string(hello), string(hello), string(hello), string(hello)} {
			send(t, dial(t, addr), text)
		}
		bad := dial(t, addr)
		send(t, bad, string(hello))
		bad.CloseWrite()
		dial(t, addr).Close()
		wait(t, func() bool { // those that never finish make room for others, and then time out
			clock.Advance(minAge)
			return failed(s.Stats()) == 11
		})
		if err := tls.Client(dial(t, addr), &tls.Config{ServerName: "localhost"}).Handshake(); err == nil {
			t.Error("an unknown certificate is no error")
		}
		wait(t, func() bool { return s.Stats().Conns == 0 })
		echoes(t, dialTLS(t, addr, config), "hello")
		h.mu.Lock()
		defer h.mu.Unlock()
		// With TLS 1.3 the client that refuses is done for the server, before it learns of that.
		if h.opens > 2 {
			t.Errorf("%d opens", h.opens)
		}
	})
}

// clientHello is what a client sends first.
func clientHello(t testing.TB, config *tls.Config) []byte {
	a, b := net.Pipe()
	defer a.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(b, config).Handshake()
	}()
	buf := make([]byte, 1<<14)
	n, err := a.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	<-done
	return buf[:n]
}

// A function of the configuration that panics or waits affects its own connection alone.
func TestTLSConfigFaults(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		clock := testclock.Install(t)
		config, client := certified(t)
		for name, panics := range map[string]uint64{"panic": 20, "wait": 0} {
			var waiting atomic.Int32
			s := &srv{Handler: &handler{t: t}, Backend: backend, HandshakeTimeout: time.Hour}
			s.TLSConfig = &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				switch hello.ServerName {
				case "panic":
					panic("no such thing")
				case "wait":
					waiting.Add(1)
					<-hello.Context().Done()
					return nil, hello.Context().Err()
				}
				return &config.Certificates[0], nil
			}}
			addr := serveTLS(t, s)
			bad := client.Clone()
			bad.ServerName = name
			var wg sync.WaitGroup
			for range 20 {
				c := dial(t, addr)
				wg.Go(func() {
					if err := tls.Client(c, bad).Handshake(); err == nil {
						t.Errorf("%s: a handshake", name)
					}
				})
			}
			if name == "wait" {
				wait(t, func() bool { // those that take long make room for others
					clock.Advance(20 * time.Millisecond)
					return waiting.Load() == 20
				})
				clock.Advance(2 * time.Hour)
			}
			wg.Wait()
			echoes(t, dialTLS(t, addr, client), "hello")
			wait(t, func() bool { return failed(s.Stats()) >= 20 }) // which the clients may know before
			if st := s.Stats(); st.Panics != panics || failed(st) != 20 {
				t.Errorf("%s: %+v", name, st)
			}
		}
	})
}

// With CryptoTLS a hijacker gets a *tls.Conn.
func TestCryptoTLS(t *testing.T) {
	noHijack(t)
	versions(t, func(t *testing.T, h *handler, s *srv) {
		h.data = reading(func(c conn, _ string) error {
			return hijack(c, func(nc net.Conn) {
				defer nc.Close()
				fmt.Fprintf(nc, "%T", nc)
			})
		})
		s.CryptoTLS = true
		addr, config := startTLS(t, s)
		c := tls.Client(dial(t, addr), config)
		send(t, c, "hello")
		expect(t, c, "*tls.Conn")
		expectEnd(t, c, io.EOF)
		if n := s.Stats().CryptoTLS; n != 0 {
			t.Errorf("%d connections could not be taken over", n)
		}
	})
}

// A connection is hijacked by a goroutine that blocks on a *tls.Conn, and resumed, with records in between.
func TestTLSHijack(t *testing.T) {
	noHijack(t)
	versions(t, func(t *testing.T, h *handler, s *srv) {
		h.data = hijackLines(t)
		c := connectTLS(t, s)
		sendLines(t, c)
		send(t, c, "hfinish")
		expect(t, c, "got finish")
		expectEnd(t, c, io.EOF)
		h.wantCause(1, nil)
	})
}

// Shutdown ends idle connections, and those whose handshake is unfinished.
func TestTLSShutdown(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		s.HandshakeTimeout = time.Hour
		server.Grace(s, 50*time.Millisecond)
		addr, config := startTLS(t, s)
		c := dialTLS(t, addr, config)
		echoes(t, c, "hello")
		send(t, dial(t, addr), "\x16")
		send(t, dial(t, addr), string(clientHello(t, config)))
		dial(t, addr)
		wait(t, func() bool { return s.Stats().Conns == 4 })
		shutdown(t, s)
		expectEnd(t, c, io.EOF)
	})
}

// The certificate may be in files, and the listener of any kind that is served.
func TestServeTLS(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		config, client := certified(t)
		cert, key, err := selfcert.PEM(config.Certificates[0])
		if err != nil {
			t.Fatal(err)
		}
		certFile, keyFile := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
		os.WriteFile(certFile, cert, 0o600)
		os.WriteFile(keyFile, key, 0o600)
		s := &srv{Handler: &handler{t: t}, Backend: backend}
		if err := s.ListenAndServeTLS("tcp", "127.0.0.1:0", "", ""); err == nil {
			t.Error("no certificate is no error")
		}
		if err := s.ListenAndServeTLS("tcp", "127.0.0.1:0", certFile, certFile); err == nil {
			t.Error("a wrong file is no error")
		}
		if err := s.ListenAndServeTLS("nonsense", "", certFile, keyFile); err == nil {
			t.Error("a wrong network is no error")
		}
		l := listenSocket(t)
		addr := l.LocalAddr().String()
		served(t, s, func() error { return s.ServeTLSSocket(l, certFile, keyFile) })
		echoes(t, dialTLS(t, addr, client), "hello")
	})
}

// A Read into an empty buffer changes nothing: Data is still called for bytes that crypto/tls has and the socket has not.
func TestTLSReadEmptyBuffer(t *testing.T) {
	versions(t, func(t *testing.T, h *handler, s *srv) {
		h.data = func(c conn, buf []byte) error {
			n, err := c.Read(buf[:1])
			if err != nil {
				return err
			}
			if n, err := c.Read(nil); n != 0 || err != nil {
				t.Errorf("Read(nil) = %d, %v", n, err)
			}
			_, err = c.Write(buf[:n])
			return err
		}
		c := connectTLS(t, s)
		send(t, c, "hello")
		send(t, c, "world")
		expect(t, c, "helloworld")
		c.CloseWrite()
		expectEnd(t, c, io.EOF)
	})
}

// DropCertificates forgets the client's certificates and nothing else, and does nothing without TLS, and where
// crypto/tls keeps the connection.
func TestDropCertificates(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, kept := range []bool{false, true} {
			states := make(chan *tls.ConnectionState, 2)
			h := &handler{t: t, open: func(c conn) error {
				states <- c.TLS()
				c.DropCertificates()
				states <- c.TLS()
				return nil
			}}
			s := &srv{Handler: h, Backend: backend, CryptoTLS: kept, TLSConfig: &tls.Config{ClientAuth: tls.RequireAnyClientCert}}
			addr, config := startTLS(t, s)
			config.Certificates = s.TLSConfig.Certificates
			c := dialTLS(t, addr, config)
			echoes(t, c, "hello")
			before, after := <-states, <-states
			if len(before.PeerCertificates) != 1 || (len(after.PeerCertificates) == 1) != kept {
				t.Errorf("CryptoTLS %v: %d certificates, and then %d", kept, len(before.PeerCertificates), len(after.PeerCertificates))
			}
			if after.Version != before.Version || after.CipherSuite != before.CipherSuite || !after.HandshakeComplete {
				t.Errorf("%+v, and then %+v", before, after)
			}
			ours, err := after.ExportKeyingMaterial("label", nil, 32)
			must(t, err)
			state := c.ConnectionState()
			if theirs, err := state.ExportKeyingMaterial("label", nil, 32); err != nil || !bytes.Equal(ours, theirs) {
				t.Error("another key is exported", err)
			}
		}
		h := &handler{t: t, open: func(c conn) error { c.DropCertificates(); return nil }}
		echoes(t, dial(t, start(t, &srv{Handler: h, Backend: backend})), "hello")
	})
}
