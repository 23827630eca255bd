package server_test

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/errno"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/server"
)

// answer is the answer of both servers to a request.
const answer = "HTTP/1.1 200 OK\r\n"

// answering is a handler that answers a request as far as the good clients here read.
func answering(c conn, buf []byte) error {
	n, err := c.Read(buf)
	if err == nil && strings.HasSuffix(string(buf[:n]), "\r\n\r\n") {
		_, err = c.Write([]byte(answer + "Content-Length: 0\r\n\r\n"))
	}
	return err
}

// stockTLS serves the same answer with net/http.
func stockTLS(t testing.TB, config *tls.Config) (addr string, stop func()) {
	t.Helper()
	l := listen(t)
	s := &http.Server{TLSConfig: config.Clone(), ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(l, "", "") }()
	return l.Addr().String(), func() { s.Close(); <-done }
}

// A holder sends a ClientHello on each of its connections and nothing after it.
type holder struct {
	dialer net.Dialer
	addr   string
	hello  []byte
	conns  []net.Conn // oldest first
	of     sync.WaitGroup
}

// hold makes n connections from an address.
func hold(t testing.TB, from, addr string, hello []byte, n int) *holder {
	t.Helper()
	h := &holder{addr: addr, hello: hello, conns: make([]net.Conn, n)}
	h.dialer = net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: soon}
	t.Cleanup(h.close)
	var failed error
	for i := range h.conns {
		c, err := h.connect()
		if err != nil {
			failed = err
			break
		}
		h.conns[i] = c
	}
	if errors.Is(failed, errno.NoAddr) {
		t.Skip("this system has one loopback address")
	}
	if failed != nil {
		t.Fatal(failed)
	}
	return h
}

func (h *holder) connect() (net.Conn, error) {
	c, err := h.dialer.Dial("tcp", h.addr)
	if err != nil {
		return nil, err
	}
	c.(*net.TCPConn).SetLinger(0) // so that its port is free again at once
	c.Write(h.hello)              // which a server may refuse
	return c, nil
}

// renew replaces the oldest connection perSecond times a second until the context ends.
func (h *holder) renew(ctx context.Context, t testing.TB, rate int) {
	h.of.Go(func() {
		clock := time.NewTicker(time.Second / time.Duration(rate))
		defer clock.Stop()
		for at := 0; ; at = (at + 1) % len(h.conns) {
			select {
			case <-ctx.Done():
				return
			case <-clock.C:
			}
			h.conns[at].Close()
			c, err := h.connect()
			if err != nil {
				t.Error(err)
				return
			}
			h.conns[at] = c
		}
	})
}

func (h *holder) close() {
	h.of.Wait()
	for _, c := range h.conns {
		if c != nil {
			c.Close()
		}
	}
}

// visit makes a full handshake, a request, and reads the beginning of its answer.
func visit(addr string, config *tls.Config) error {
	c, err := net.DialTimeout("tcp", addr, soon)
	if err != nil {
		return err
	}
	defer c.Close()
	c.(*net.TCPConn).SetLinger(0)
	c.SetDeadline(time.Now().Add(soon))
	tc := tls.Client(c, config)
	if _, err := io.WriteString(tc, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(tc, got); err != nil {
		return err
	}
	if string(got) != answer {
		return fmt.Errorf("answered %q", got)
	}
	return nil
}

// minAge is the age below which a server does not end a handshake to make room for another.
const minAge = 500 * time.Millisecond

// visitUntilServed visits again where the client itself may have been too slow: a server without free slots may end a
// handshake whose peer has not answered for half a second, and on a busy machine a good client can need longer.
func visitUntilServed(addr string, config *tls.Config) error {
	for first := time.Now(); ; {
		from := time.Now()
		err := visit(addr, config)
		if took := time.Since(from); err == nil || took < minAge {
			return err
		}
		if time.Since(first) > soon {
			return fmt.Errorf("not served within %v: %w", soon, err)
		}
	}
}

// visits lets several clients visit two servers in turn until the context ends, and returns the sorted durations of the
// visits of each server.
func visits(ctx context.Context, t testing.TB, clients int, addrs [2]string, config *tls.Config) (took [2][]time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range clients {
		wg.Go(func() {
			for i := k % 2; ctx.Err() == nil; i = 1 - i {
				from := time.Now()
				err := visit(addrs[i], config)
				d := time.Since(from)
				if err != nil {
					t.Errorf("server %d: a handshake failed after %v: %v", i, d, err)
					return
				}
				mu.Lock()
				took[i] = append(took[i], d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took[0])
	slices.Sort(took[1])
	return took
}

// unfinished starts a server with a number of slots for handshakes and a long HandshakeTimeout.
func unfinished(t *testing.T, backend string, slots int) (s *srv, addr string, client *tls.Config) {
	s = &srv{Handler: &handler{t: t, data: answering}, Backend: backend, MaxHandshakes: slots, HandshakeTimeout: time.Hour}
	addr, client = startTLS(t, s)
	return s, addr, client
}

// Many more peers than there are slots begin handshakes and then send nothing, and new ones keep doing so. Each good client
// completes its handshake.
func TestTLSUnfinishedHandshakes(t *testing.T) {
	t.Parallel()                                              // it waits
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} { // the good clients', and another
		t.Run(from, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				s, addr, client := unfinished(t, backend, 16)
				h := hold(t, from, addr, clientHello(t, client), 100)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h.renew(ctx, t, 100)
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						for range long.Or(5, 1) {
							if err := visitUntilServed(addr, client); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				if failed(s.Stats()) == 0 {
					t.Error("no handshake was ended for another")
				}
			})
		})
	}
}

// While there are slots, no handshake is ended. Each one beyond ends one other.
func TestTLSHandshakeSlots(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		const slots, more = 10, 30
		clock := testclock.Install(t)
		s, addr, client := unfinished(t, backend, slots)
		hello := clientHello(t, client)
		h := hold(t, "127.0.0.1", addr, hello, slots)
		for _, c := range h.conns {
			expectFlight(t, c)
		}
		before := runtime.NumGoroutine() // now that the workers run
		if st := s.Stats(); st.Conns != slots || failed(st) != 0 {
			t.Errorf("with free slots: %+v", st)
		}
		for ended := 0; ended < more; ended += slots {
			h = hold(t, "127.0.0.1", addr, hello, slots)
			wait(t, func() bool { st := s.Stats(); return st.Conns+int(failed(st)) == ended+2*slots })
			if n := failed(s.Stats()); n != uint64(ended) {
				t.Fatalf("%d handshakes ended before they had their time", int(n)-ended)
			}
			clock.Advance(minAge) // so that those before may be ended, and these not
			for _, c := range h.conns {
				expectFlight(t, c)
			}
			// The slot of one that is ended is free before the end is counted.
			wait(t, func() bool { st := s.Stats(); return st.Conns == slots && failed(st) >= uint64(ended+slots) })
		}
		if n := failed(s.Stats()); n != more {
			t.Errorf("%d handshakes ended for %d others", n, more)
		}
		// crypto/tls has a goroutine of its own for each context.
		wait(t, func() bool { return runtime.NumGoroutine() <= before+slots })
	})
}

// expectFlight reads the beginning of a server's first flight.
func expectFlight(t testing.TB, c net.Conn) {
	t.Helper()
	expect(t, c, "\x16\x03\x03")
}

// If there is no free slot, the oldest handshake of the address with the most unfinished ones is ended; among addresses
// with equal numbers, the oldest of all.
func TestTLSEvictionByAddress(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		clock := testclock.Install(t)
		s, addr, client := unfinished(t, backend, 4)
		hello := clientHello(t, client)
		holding := func(from string) net.Conn {
			clock.Advance(minAge) // so that each of the earlier ones may be ended, and none is as old as another
			c := hold(t, from, addr, hello, 1).conns[0]
			expectFlight(t, c)
			return c
		}
		ended := func(c net.Conn) {
			t.Helper()
			c.SetReadDeadline(time.Now().Add(soon))
			if _, err := io.Copy(io.Discard, c); err != nil && !isReset(err) {
				t.Fatalf("%v\n%s", err, server.Describe(s))
			}
		}
		a1 := holding("127.0.0.1")
		b1, b2, b3 := holding("127.0.0.2"), holding("127.0.0.2"), holding("127.0.0.2")
		a2 := holding("127.0.0.1") // 1 and 3 others
		ended(b1)
		a3 := holding("127.0.0.1") // 2 and 2
		ended(a1)
		c1 := holding("127.0.0.3") // 2 and 2
		ended(b2)
		c2 := holding("127.0.0.3") // 2, 1 and 1
		ended(a2)
		wait(t, func() bool { return s.Stats().Conns == 4 })
		if n := failed(s.Stats()); n != 4 {
			t.Errorf("%d handshakes ended", n)
		}
		for _, c := range []net.Conn{b3, a3, c1, c2} { // what is left
			c.Close()
		}
		wait(t, func() bool { return failed(s.Stats()) == 8 })
	})
}

// Functions of the configuration that wait, more of them than may compute at once, do not delay other handshakes for long.
// crypto/tls calls them, so the server is not told.
func TestTLSBlockingConfig(t *testing.T) {
	config, client := certified(t)
	for name, set := range map[string]func(c *tls.Config, wait func()){
		"GetCertificate": func(c *tls.Config, wait func()) {
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if hello.ServerName == "slow" {
					wait()
				}
				return &config.Certificates[0], nil
			}
		},
		"GetConfigForClient": func(c *tls.Config, wait func()) {
			c.Certificates = config.Certificates
			c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				if hello.ServerName == "slow" {
					wait()
				}
				return nil, nil
			}
		},
		"Signer": func(c *tls.Config, wait func()) {
			slow := config.Certificates[0]
			slow.PrivateKey = slowSigner{slow.PrivateKey.(crypto.Signer), wait}
			c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				if hello.ServerName == "slow" {
					return &slow, nil
				}
				return &config.Certificates[0], nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Each(t, func(t *testing.T, backend string) {
				n := 3 * 4 * runtime.GOMAXPROCS(0)
				var in atomic.Int32
				release := make(chan struct{})
				s := &srv{Handler: &handler{t: t, data: answering}, Backend: backend, HandshakeTimeout: time.Hour, TLSConfig: new(tls.Config)}
				set(s.TLSConfig, func() { in.Add(1); <-release })
				addr := serveTLS(t, s)
				defer close(release) // Shutdown waits for the functions
				slow := client.Clone()
				slow.ServerName = "slow"
				hold(t, "127.0.0.1", addr, clientHello(t, slow), n)
				wait(t, func() bool { return int(in.Load()) == n })
				for range 3 {
					if err := visit(addr, client); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A slowSigner waits before it signs, as a remote one does.
type slowSigner struct {
	crypto.Signer
	wait func()
}

func (s slowSigner) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	s.wait()
	return s.Signer.Sign(rand, digest, opts)
}

// A function of the configuration that panics or calls Goexit closes its connection, and frees the slot of its handshake.
func TestTLSConfigPanicFreesSlot(t *testing.T) {
	config, client := certified(t)
	for name, set := range map[string]func(c *tls.Config, f func()){
		"GetCertificate": func(c *tls.Config, f func()) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { f(); return &config.Certificates[0], nil }
		},
		"GetConfigForClient": func(c *tls.Config, f func()) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { f(); return nil, nil }
		},
		"VerifyConnection": func(c *tls.Config, f func()) {
			c.VerifyConnection = func(tls.ConnectionState) error { f(); return nil }
		},
		"VerifyPeerCertificate": func(c *tls.Config, f func()) {
			c.ClientAuth = tls.RequireAnyClientCert
			c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { f(); return nil }
		},
	} {
		for how, end := range map[string]func(){"panic": func() { panic("no such thing") }, "Goexit": runtime.Goexit} {
			t.Run(name+"/"+how, func(t *testing.T) {
				backendtest.Each(t, func(t *testing.T, backend string) {
					n := 4*runtime.GOMAXPROCS(0) + 1
					var bad atomic.Bool
					var log logged
					s := &srv{Handler: &handler{t: t, data: answering}, Backend: backend, MaxHandshakes: 1, HandshakeTimeout: time.Hour,
						TLSConfig: &tls.Config{Certificates: config.Certificates},
						Logger:    log.logger()}
					set(s.TLSConfig, func() {
						if bad.Load() {
							end()
						}
					})
					client := client.Clone()
					client.Certificates = config.Certificates
					addr := serveTLS(t, s)
					bad.Store(true)
					for range n {
						if visit(addr, client) == nil {
							t.Error("answered")
						}
					}
					wait(t, func() bool { return s.Stats().Conns == 0 })
					bad.Store(false)
					if err := visit(addr, client); err != nil {
						t.Error(err)
					}
					if st := s.Stats(); st.Panics != uint64(n) || failed(st) != uint64(n) {
						t.Errorf("%+v", st)
					}
					want := "no such thing"
					if how == "Goexit" {
						want = "Goexit"
					}
					if text := log.String(); !strings.Contains(text, "TLS configuration panicked") || !strings.Contains(text, want) {
						t.Errorf("logged: %s", text)
					}
				})
			})
		}
	}
}

// BenchmarkTLSUnfinishedHandshakes compares full handshakes of good clients, with a request each, with those of a server of
// net/http in the same process and at the same time. Beside each server there are connections that send a ClientHello and
// nothing more, of which 130 a second are replaced by new ones. The ratio is that of handshakes in a second. None may fail.
func BenchmarkTLSUnfinishedHandshakes(b *testing.B) {
	for _, n := range []int{0, 1100, 4500} {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} { // the good clients', and another
			b.Run(fmt.Sprintf("%d/%s", n, from), func(b *testing.B) {
				config, client := certified(b)
				for b.Loop() {
					s := &srv{Handler: &handler{t: b, data: answering}, TLSConfig: config}
					l := listen(b)
					done := make(chan error, 1)
					go func() { done <- s.ServeTLS(l, "", "") }()
					stock, stop := stockTLS(b, config)
					addrs := [2]string{l.Addr().String(), stock}

					ctx, cancel := context.WithCancel(b.Context())
					for _, addr := range addrs {
						if n > 0 {
							h := hold(b, from, addr, clientHello(b, client), n)
							h.renew(ctx, b, 130)
						}
					}
					good, stopGood := context.WithTimeout(ctx, 10*time.Second)
					took := visits(good, b, 4, addrs, client)
					stopGood()
					cancel()
					rate := [2]float64{}
					for i, name := range []string{"", "stock-"} {
						var sum time.Duration
						for _, d := range took[i] {
							sum += d
						}
						rate[i] = float64(len(took[i])) / sum.Seconds()
						b.ReportMetric(float64(len(took[i])), name+"handshakes")
						b.ReportMetric(float64(sum.Microseconds())/float64(len(took[i])), name+"µs")
						b.ReportMetric(float64(took[i][len(took[i])-1])/1e6, name+"worst-ms")
					}
					b.ReportMetric(rate[0]/rate[1], "ratio")
					b.ReportMetric(0, "ns/op")
					s.Close()
					<-done
					shutdown(b, s)
					stop()
				}
			})
		}
	}
}
